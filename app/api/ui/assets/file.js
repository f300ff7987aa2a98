"use strict";
// The page for a file. The browser has the file: it is sent once more to become another one, and kept nowhere.
(() => {
  const { request, notify, save } = window.shardsmith;
  const form = () => document.querySelector("form[data-drop]");
  const input = () => form().querySelector("input[type=file]");

  const reveal = () => {
    for (const each of document.querySelectorAll("[data-needs-script]")) each.hidden = false;
  };
  document.addEventListener("DOMContentLoaded", reveal);
  document.addEventListener("htmx:afterSettle", (event) => {
    reveal();
    // What the back button restores has no target.
    if (event.detail.target?.id !== "findings" && event.detail.elt.id !== "findings") return;
    document.getElementById("findings").focus({ preventScroll: true });
    notify("The file was read.");
  });

  document.addEventListener("dragover", (event) => {
    if (form() === null) return;
    event.preventDefault();
    form().classList.add("over");
  });
  document.addEventListener("dragleave", (event) => {
    if (form() !== null && event.relatedTarget === null) form().classList.remove("over");
  });
  document.addEventListener("drop", (event) => {
    if (form() === null) return;
    event.preventDefault();
    form().classList.remove("over");
    if (event.dataTransfer.files.length !== 1) {
      notify("Drop one file at a time.");
      return;
    }
    input().files = event.dataTransfer.files;
    form().requestSubmit();
  });
  document.addEventListener("change", (event) => {
    if (form() !== null && event.target === input() && input().files.length) form().requestSubmit();
  });

  const bar = () => form().querySelector("progress");
  document.addEventListener("htmx:xhr:progress", (event) => {
    if (form() === null || event.target !== form() || !event.detail.lengthComputable) return;
    bar().hidden = false;
    bar().value = event.detail.loaded / event.detail.total;
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    if (form() !== null && event.target === form()) bar().hidden = true;
  });

  const send = async (button) => {
    const file = input().files[0];
    if (file === undefined) {
      notify("Choose the file again: this page does not have it any more.");
      return;
    }
    const headers = { "Content-Type": "application/octet-stream" };
    if (button.dataset.coding) headers["Content-Encoding"] = button.dataset.coding;
    const name = button.dataset.name;
    button.disabled = true;
    try {
      const answer = await request(button.dataset.send, { method: "POST", headers, body: file });
      if (!answer.ok) {
        const problem = await answer.json();
        throw new Error(problem.detail || `The service answered ${answer.status}.`);
      }
      save(await answer.blob(), name);
      const rounded = answer.headers.get("Rounded-Features");
      notify(`${name} is saved.` + (rounded ? ` Rounded to float32: ${decodeURIComponent(rounded)}.` : ""));
    } catch (error) {
      notify(`${name} was not saved: ${error.message}`);
    } finally {
      button.disabled = false;
    }
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-send]");
    if (button !== null) send(button);
  });
})();
