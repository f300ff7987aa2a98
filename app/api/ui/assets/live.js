"use strict";
// A page that changes while it is shown. Server-sent events are read by hand: an EventSource sends no token.
(() => {
  const { request, visit } = window.shardsmith;
  const FIRST_WAIT = 1000;
  const LONGEST_WAIT = 30_000;
  let stopping = null;
  let isPaused = false;

  const say = (place, name, text) => {
    const told = place.querySelector(`[data-live-${name}]`);
    if (told.textContent !== text) told.textContent = text;
  };

  /** Show HTML of the service. A link that has the focus keeps it. */
  const show = (place, { html, said }) => {
    const now = place.querySelector("[data-live-now]");
    const focused = now.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    now.innerHTML = html;
    htmx.process(now);
    if (focused !== null) {
      [...now.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus({ preventScroll: true });
    }
    say(place, "said", said);
    say(place, "state", "Updated as it changes.");
  };

  /** Show events until there are no more; whether it is worth asking again. */
  const read = async (place, signal) => {
    const answer = await request(place.dataset.live, { headers: { Accept: "text/event-stream" }, signal });
    if ([401, 403].includes(answer.status)) visit(location.pathname);
    if (!answer.ok) return answer.status >= 500;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ; ) {
      const { done, value } = await reader.read();
      if (done) return true;
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const event of events) {
        const data = event.split("\n").find((line) => line.startsWith("data: "));
        if (data !== undefined && !signal.aborted) show(place, JSON.parse(data.slice(6)));
      }
    }
  };

  /** Follow what the page shows, unless nobody looks. */
  const follow = async () => {
    stopping?.abort();
    const place = document.querySelector("[data-live]");
    if (place === null || isPaused || document.hidden) return;
    const { signal } = (stopping = new AbortController());
    for (let wait = FIRST_WAIT; ; wait = Math.min(2 * wait, LONGEST_WAIT)) {
      const began = Date.now();
      try {
        if (!(await read(place, signal))) {
          say(place, "state", "It cannot be followed here; load the page anew.");
          return;
        }
      } catch {
        if (signal.aborted) return;
      }
      if (Date.now() - began > LONGEST_WAIT) wait = FIRST_WAIT;
      say(place, "state", "Not connected; trying again.");
      await new Promise((resolve) => setTimeout(resolve, wait));
      if (signal.aborted) return;
    }
  };

  const begin = () => {
    isPaused = false;
    follow();
  };
  document.addEventListener("DOMContentLoaded", begin);
  document.addEventListener("visibilitychange", follow);
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.target === document.body) begin();
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-live-pause]");
    if (button === null) return;
    isPaused = !isPaused;
    button.setAttribute("aria-pressed", String(isPaused));
    say(button.closest("[data-live]"), "state", isPaused ? "Paused." : "");
    follow();
  });
})();
