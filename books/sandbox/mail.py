"""`python -m books.sandbox.mail`: an SMTP server that takes every mail, logs it and keeps none.

`--ready-file` appears, with `smtp://127.0.0.1:PORT` in it, when the server listens; SIGTERM or SIGINT ends it at once.
Each mail leaves one JSON line, written before the sender hears 250: what a sender was told is in it.

Not guaranteed: that the sender of a mail in the log knows it was taken; its session may have broken before the 250.
"""

from __future__ import annotations

import asyncio
from email import policy
from email.parser import BytesParser
from pathlib import Path

from aiosmtpd.smtp import SMTP, Envelope, Session

from books.sandbox import serving
from books.sandbox.serving import Journal

_HEADERS = ("Subject", "Message-ID", "X-Idempotency-Key")


class Sink:
    """What the server does with a mail: one line of the log."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:
        content = envelope.original_content or b""
        mail = BytesParser(policy=policy.default).parsebytes(content, headersonly=True)
        told = {name: None if (value := mail.get(name)) is None else str(value) for name in _HEADERS}
        self._journal.line(
            **{"from": envelope.mail_from},
            to=envelope.rcpt_tos,
            subject=told["Subject"],
            message_id=told["Message-ID"],
            idempotency_key=told["X-Idempotency-Key"],
            size=len(content),
        )
        return "250 OK"


async def _serve(port: int, ready_file: Path | None, journal: Journal) -> None:
    loop = asyncio.get_running_loop()
    serving.end_at_once()

    def connected() -> SMTP:
        return SMTP(Sink(journal), hostname="mail.sandbox", ident="sandbox", enable_SMTPUTF8=True, loop=loop)

    server = await loop.create_server(connected, "127.0.0.1", port)
    host, bound = server.sockets[0].getsockname()[:2]
    serving.announce(f"smtp://{host}:{bound}", ready_file, "sandbox mail server")
    await server.serve_forever()


def main() -> None:
    arguments = serving.parser("books.sandbox.mail", "Takes every mail and keeps none.").parse_args()
    serving.set_clock()
    asyncio.run(_serve(arguments.port, arguments.ready_file, Journal(arguments.log)))


if __name__ == "__main__":
    main()
