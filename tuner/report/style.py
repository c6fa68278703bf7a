"""The look of the page: one style sheet, in the file itself."""

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --line: #d8dde4; --back: #ffffff; --card: #f6f8fa;
  --fine: #1a7f37; --improve: #9a6700; --broken: #c62128; --open: #5b6675; --accent: #0b62c4; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9f0; --soft: #9aa6b5; --line: #333c48; --back: #12161c;
  --card: #1a2029; --fine: #4ac26b; --improve: #d9a32b; --broken: #ff7b72; --open: #9aa6b5; --accent: #66b0ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px; max-width: 980px; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 20px; margin: 36px 0 10px; } h3 { font-size: 16px; margin: 0; }
p { margin: 6px 0; } .soft, small { color: var(--soft); } code { font-size: 13px; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; } .number { text-align: right; white-space: nowrap; }
.cards { display: flex; flex-wrap: wrap; gap: 12px; margin: 16px 0; }
.card { background: var(--card); border-radius: 8px; padding: 10px 16px; min-width: 150px; }
.card b { display: block; font-size: 20px; }
details { border: 1px solid var(--line); border-radius: 8px; margin: 10px 0; padding: 10px 14px; }
summary { cursor: pointer; } summary h3 { display: inline; margin-left: 6px; }
details[open] > summary { margin-bottom: 8px; }
.verdict { font-weight: 600; white-space: nowrap; } .fine { color: var(--fine); } .improve { color: var(--improve); }
.broken { color: var(--broken); } .not_measured, .not_comparable { color: var(--open); }
.advice { background: var(--card); border-left: 3px solid var(--accent); padding: 6px 12px; margin: 8px 0; }
.finding { margin: 12px 0; }
svg { width: 100%; height: auto; } svg text { fill: var(--soft); font-size: 12px; } svg .grid { stroke: var(--line); }
svg .limit { stroke: var(--broken); stroke-dasharray: 5 4; } svg .front { fill: none; stroke: var(--accent); }
svg .other { fill: var(--line); stroke: var(--soft); } svg .on-front { fill: var(--accent); }
svg .winner { fill: var(--fine); } svg .baseline { fill: var(--improve); }
@media print { body { max-width: none; padding: 0; } details { break-inside: avoid; } }
"""
