"""Writes all golden files anew: python -m tests.golden"""

from tests.golden import cases, golden


def main() -> None:
    known = {case.name for case in cases.load()}
    for path in golden.RECORDED.glob("*.json"):
        if path.stem not in known:
            path.unlink()
    changed = [case.name for case in cases.load() if golden.write(case)]
    print(f"{len(known)} cases, {len(changed)} changed", *changed, sep="\n  ")


if __name__ == "__main__":
    main()
