"use strict";
// The token lives in this closure, and leaves it in the header Authorization of requests to this origin alone.
(() => {
  let token = null;

  const isOwn = (url) => new URL(url, location.href).origin === location.origin;

  /** `fetch` with the token. */
  const request = (url, options = {}) => {
    const headers = new Headers(options.headers);
    if (token !== null && isOwn(url)) headers.set("Authorization", `Bearer ${token}`);
    return fetch(url, { ...options, headers, credentials: "omit" });
  };

  const notify = (text) => {
    document.getElementById("notice").textContent = text;
  };

  // htmx: navigation that keeps this page, and so the token.

  const visit = (url) => {
    htmx.ajax("GET", url, { target: document.body, swap: "innerHTML" });
  };

  document.addEventListener("htmx:configRequest", (event) => {
    const { headers, path } = event.detail;
    headers.Accept = "text/html";
    if (token !== null && isOwn(path)) headers.Authorization = `Bearer ${token}`;
  });

  document.addEventListener("htmx:historyCacheMiss", (event) => {
    const { xhr } = event.detail;
    xhr.setRequestHeader("Accept", "text/html");
    if (token !== null) xhr.setRequestHeader("Authorization", `Bearer ${token}`);
    // Whatever comes is shown: a page that asks to sign in, too.
    xhr.addEventListener("load", () => {
      if (xhr.status >= 400) visit(location.pathname + location.search);
    });
  });

  // An error is a page of its own, whatever part of this one asked.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { detail } = event;
    if (detail.xhr.status < 400) return;
    detail.shouldSwap = true;
    detail.target = document.body;
    detail.swapOverride = "innerHTML";
    detail.selectOverride = "unset";
  });

  document.addEventListener("htmx:sendError", () => notify("The service cannot be reached."));

  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.target !== document.body) return;
    const first = document.querySelector("[data-sign-in] input") || document.getElementById("main");
    first.focus({ preventScroll: true });
    notify(document.title);
  });

  // Signing in and out.

  document.addEventListener("submit", (event) => {
    if (!event.target.matches("[data-sign-in]")) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    const given = event.target.querySelector("input").value.trim();
    if (!/^[\x21-\x7e]+$/.test(given)) {
      notify("A token has no spaces, and ASCII characters alone.");
      return;
    }
    token = given;
    visit(location.pathname + location.search);
  }, true);

  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-sign-out], [data-copy], [data-download]");
    if (target === null) return;
    if (target.matches("[data-sign-out]")) {
      token = null;
      visit(location.pathname + location.search);
    } else if (target.matches("[data-copy]")) {
      copy(target);
    } else if (token !== null) {
      event.preventDefault();
      download(target);
    }
  });

  const copy = async (button) => {
    const text = button.parentElement.querySelector("code").textContent;
    try {
      await navigator.clipboard.writeText(text);
      notify("Copied.");
    } catch {
      getSelection().selectAllChildren(button.parentElement.querySelector("code"));
      notify("Selected; copy it with the keyboard.");
    }
  };

  // Downloads with a token: a link cannot send one.

  const MOST_IN_MEMORY = 256 * 1024 * 1024;

  const download = async (link) => {
    const name = link.getAttribute("download");
    const stopping = new AbortController();
    try {
      const file = "showSaveFilePicker" in window ? await showSaveFilePicker({ suggestedName: name }) : null;
      const answer = await request(link.href, { signal: stopping.signal });
      if (!answer.ok) throw new Error(`The service answered ${answer.status}.`);
      if (file !== null) {
        await answer.body.pipeTo(await file.createWritable());
        notify(`${name} is saved.`);
        return;
      }
      if (Number(answer.headers.get("Content-Length")) > MOST_IN_MEMORY) {
        stopping.abort();
        notify(`Too large for this browser: curl -fO -H 'Authorization: Bearer …' '${link.href}'`);
        return;
      }
      save(await answer.blob(), name);
    } catch (error) {
      if (error.name !== "AbortError") notify(`${name} was not saved: ${error.message}`);
    }
  };

  /** Offer bytes as a file. */
  const save = (blob, name) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  };

  window.shardsmith = Object.freeze({ request, notify, save, visit });
})();
