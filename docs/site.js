// A table that scrolls can be reached by keyboard. The theme wraps tables after it has loaded the page.
new MutationObserver(() => {
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) table.tabIndex = 0;
}).observe(document.body, { childList: true, subtree: true });
