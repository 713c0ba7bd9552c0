//! The style of the page that shows a profile.

/// The style sheet: everything is drawn with it, and nothing is loaded.
pub(super) const STYLE: &str = "\
:root{--model:#7c5cff;--tool:#1a9c6b;--hook:#b08a00;--breakpoint:#d6493b;--user:#3d8bd4;--idle:#c9ccd3;--text:#1c1e22;--dim:#5f6570;--line:#dfe2e7;--page:#fff}\n\
@media(prefers-color-scheme:dark){:root{--model:#9f88ff;--tool:#3cc28e;--hook:#d9b23a;--breakpoint:#f07a6d;--user:#6db0ef;--idle:#454a53;--text:#e8eaee;--dim:#9aa1ad;--line:#33373e;--page:#16181c}}\n\
*{box-sizing:border-box}\n\
body{margin:0 auto;max-width:1100px;padding:24px 20px 60px;font:15px/1.5 system-ui,sans-serif;color:var(--text);background:var(--page)}\n\
h1{font-size:22px;margin:0 0 4px;overflow-wrap:anywhere}h2{font-size:17px;margin:32px 0 8px}p{margin:4px 0}.dim{color:var(--dim)}\n\
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}th,td{padding:4px 8px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}\n\
th:first-child,td:first-child{text-align:left;white-space:normal;overflow-wrap:anywhere}th{font-weight:600;color:var(--dim)}.scroll{overflow-x:auto}\n\
svg{display:block;width:100%;background:transparent}svg text{fill:var(--text);font:11px system-ui,sans-serif}\n\
.model{fill:var(--model)}.tool{fill:var(--tool)}.hook{fill:var(--hook)}.breakpoint{fill:var(--breakpoint)}.user{fill:var(--user)}.idle{fill:var(--idle)}\n\
.inferred{opacity:.55}.failed{stroke:var(--breakpoint);stroke-width:1.5}.critical{fill:var(--text)}.axis{stroke:var(--line)}\n\
details{margin:10px 0;border:1px solid var(--line);border-radius:6px;padding:8px 12px}summary{cursor:pointer;font-weight:600}\n\
.key{display:flex;flex-wrap:wrap;gap:6px 18px;margin:8px 0;padding:0;list-style:none}.key svg{display:inline-block;width:11px;height:11px;margin-right:6px}\n";
