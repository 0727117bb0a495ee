"""The sandbox's language model: the OpenAI chat-completions API over real HTTP, seeded.

`weather` says how long an answer takes and what goes wrong, `reading` what is asked, `replies` (with `arguments`) what
is answered, `server` puts it together. It reads what it is sent: fields come from the receipt in the prompt, a
category from the transaction's words.
"""
