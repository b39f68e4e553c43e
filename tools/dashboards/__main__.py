"""Write dashboards/*.json and k8s/components/dashboards; files there that are not made any more are removed."""

from __future__ import annotations

from tools.dashboards.files import COMPONENT, FOLDER, ROOT, files


def main() -> None:
    """Write what `files` gives."""
    made = files()
    for path in {*FOLDER.glob("*.json"), *COMPONENT.glob("*.yaml")} - set(made):
        path.unlink()
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    print(f"wrote {len(made)} files: {FOLDER.relative_to(ROOT)}, {COMPONENT.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
