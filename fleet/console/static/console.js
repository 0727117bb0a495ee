// Brings the live part of a page up to date while it is open, and says in the header whether it does.
// The page reads the same without it.
(() => {
  "use strict";
  const part = document.querySelector("[data-live]");
  const pulse = document.getElementById("pulse");
  document.documentElement.classList.add("scripted");
  if (!part || !window.EventSource) return;

  const source = new EventSource("/live?page=" + encodeURIComponent(part.dataset.live));
  const say = (text, tone) => {
    pulse.textContent = text;
    pulse.className = "pulse " + tone;
  };
  const time = document.querySelector(".clock time");
  // What has the focus keeps it: a link is found again by its address, a fold by its place.
  const place = (element) => element && part.contains(element) && element.getAttribute("href");

  source.addEventListener("part", (event) => {
    const focused = place(document.activeElement);
    const open = new Set([...part.querySelectorAll("details[open][id]")].map((one) => one.id));
    part.innerHTML = event.data;
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (focused) part.querySelector('a[href="' + CSS.escape(focused) + '"]')?.focus();
    say("live", "good");
  });
  source.addEventListener("failed", (event) => say(event.data, "bad"));
  // A stream that ends is opened again by the browser; one that was refused (a session that is over) is not.
  source.addEventListener("error", () => {
    const over = source.readyState === EventSource.CLOSED;
    say(over ? "no longer live; open the page again" : "not live since " + time.textContent + "; trying again", "bad");
  });
  source.addEventListener("clock", (event) => { time.textContent = event.data; });
  window.addEventListener("pagehide", () => source.close());
})();
