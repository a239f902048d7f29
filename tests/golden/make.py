"""Make the cases again, all or those that are named, and say in full what changed.

    python tests/golden/make.py [--write] [NAME ...]

With --write, plans.json is written anew. On the machine that wrote it, nothing at all differs,
not even in the unsteady cases, unless the arithmetic of a compiled function has changed.
"""

import json
import sys

import cases


def main() -> None:
    write = "--write" in sys.argv
    names = [name for name in sys.argv[1:] if name != "--write"] or list(cases.CASES)
    stored = json.loads(cases.PLANS.read_text()) if cases.PLANS.exists() else {}
    changed = 0
    for name in names:
        now = cases.made(name)
        lines = cases.compared(name, stored[name], now) if name in stored else [f"{name}: new"]
        changed += bool(lines)
        stored[name] = now
        print("\n".join(lines) or f"{name}: the same", flush=True)
    print(f"{changed} of {len(names)} cases differ")
    if write:
        kept = {name: stored[name] for name in cases.CASES if name in stored}
        cases.PLANS.write_text(json.dumps(kept, indent=1) + "\n")
    sys.exit(bool(changed) and not write)


if __name__ == "__main__":
    main()
