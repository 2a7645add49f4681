// Fetches this page again every few seconds and changes what differs, node by node, so that focus,
// open details, selection and scroll stay. Without it the page is whole, and "Reload" reloads it.
(() => {
  "use strict";
  const EVERY = 5000, PATIENCE = 10000, TYPING = 250, PARTS = ["header", "main", "footer"];
  const pause = document.getElementById("pause");
  const connection = document.getElementById("connection");
  const form = document.getElementById("filter-form"); // A Job's own page has none.
  let timer = 0, asked = 0, isPaused = false;

  const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE && node.id) || "";
  // What only this script or the reader changes.
  const isOurs = (node) => ["pause", "reload", "connection"].includes(keyOf(node));
  const isRead = (node) => node.nodeType === Node.ELEMENT_NODE && node.querySelector(":scope > details[open]");

  function takeAttributes(old, fresh) {
    for (const { name } of [...old.attributes]) {
      if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
  }

  function take(old, fresh) {
    if (isOurs(old)) return;
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    takeAttributes(old, fresh);
    // A field keeps what is being typed; its attribute is only where it began.
    if (old.localName !== "input") takeChildren(old, fresh);
  }

  const isLike = (one, other) => one.nodeName === other.nodeName && keyOf(one) === keyOf(other);

  function takeChildren(old, fresh) {
    const keyed = new Map();
    const kept = new Set([...fresh.childNodes].map(keyOf).filter(Boolean));
    for (const child of old.childNodes) if (keyOf(child)) keyed.set(keyOf(child), child);
    let next = old.firstChild;
    for (const wanted of [...fresh.childNodes]) {
      const known = keyOf(wanted) ? keyed.get(keyOf(wanted)) : next;
      if (known && isLike(known, wanted)) {
        // A node is moved only where its place is another: moving takes the focus away.
        while (next && next !== known && !kept.has(keyOf(next))) {
          const gone = next;
          next = next.nextSibling;
          if (!isRead(gone)) gone.remove();
        }
        if (next === known) next = next.nextSibling;
        else old.insertBefore(known, next);
        take(known, wanted);
      } else {
        old.insertBefore(document.importNode(wanted, true), next);
      }
    }
    while (next) {
      const rest = next;
      next = next.nextSibling;
      // What is open stays until it is closed, also when it is no longer among the latest.
      if (!isRead(rest) || !keyOf(rest)) rest.remove();
    }
  }

  function looked() {
    const focused = document.activeElement ?? document.body;
    const { top } = focused.getBoundingClientRect();
    if (focused.closest("main") && focused.id !== "main" && top >= 0 && top < innerHeight) return focused;
    return document.elementsFromPoint(innerWidth / 2, 40).find((node) => node.closest("[id]:not(main, section)"));
  }

  function show(text) {
    // Its style has another nonce than this page's, which the browser would complain about.
    const fresh = new DOMParser().parseFromString(text.replace(/<style[^]*?<\/style>/, ""), "text/html");
    if (!fresh.getElementById("main")) throw new Error("another page");
    const anchor = scrollY > 0 ? looked() : null;
    const before = anchor?.getBoundingClientRect().top;
    for (const part of PARTS) take(document.querySelector("body > " + part), fresh.querySelector("body > " + part));
    document.title = fresh.title;
    if (anchor?.isConnected) scrollBy({ top: anchor.getBoundingClientRect().top - before, behavior: "instant" });
  }

  async function refresh() {
    const number = ++asked;
    clearTimeout(timer);
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
      const text = answer.ok ? await answer.text() : "";
      if (number !== asked) return;
      show(text);
      connection.textContent = "";
    } catch {
      if (number !== asked) return;
      const said = "No answer from the console; what is shown is old. It is asked again every few seconds.";
      if (connection.textContent !== said) connection.textContent = said;
    }
    wait();
  }

  function wait() {
    clearTimeout(timer);
    if (!isPaused && !document.hidden) timer = setTimeout(refresh, EVERY);
  }

  function setPaused(paused) {
    isPaused = paused;
    pause.setAttribute("aria-pressed", String(paused));
    sessionStorage.setItem("paused", paused ? "yes" : "");
  }

  function filter() {
    const fields = [...new FormData(form)].filter(([, value]) => value.trim());
    history.replaceState(null, "", "?" + new URLSearchParams(fields));
    refresh();
  }

  let typing = 0;
  form?.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(filter, TYPING);
  });
  form?.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(typing);
    filter();
  });
  pause.addEventListener("click", () => {
    setPaused(!isPaused);
    if (isPaused) clearTimeout(timer);
    else refresh();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer);
    else if (!isPaused) refresh();
  });
  document.getElementById("reload").hidden = true;
  pause.hidden = false;
  setPaused(sessionStorage.getItem("paused") === "yes");
  wait();
})();
