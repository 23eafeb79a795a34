"""Bundle the parts of three.js that pages of `homing share` use; needs Node with npm, and the network once.

    python tools/make_share_three.py

writes `three.min.js` and its licence to the package, where pages take them from.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
ASSETS = ROOT / "src" / "homing" / "share" / "assets"
VERSIONS = ("three@0.187.0", "esbuild@0.28.2")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        shutil.copy(ROOT / "tools" / "share_page" / "three_entry.js", work / "entry.js")
        subprocess.run(
            ["npm", "install", "--silent", "--no-fund", "--no-audit", *VERSIONS], cwd=work, check=True
        )
        options = ["--bundle", "--minify", "--format=iife", "--global-name=THREE", "--target=es2020"]
        notice = "--banner:js=/* three.js 0.187.0, MIT licence, copyright three.js authors: see LICENSE.three.txt */"
        bundle = ASSETS / "three.min.js"
        command = [
            "npx",
            "esbuild",
            "entry.js",
            *options,
            "--legal-comments=none",
            notice,
            f"--outfile={bundle}",
        ]
        subprocess.run(command, cwd=work, check=True)
        shutil.copy(work / "node_modules" / "three" / "LICENSE", ASSETS / "LICENSE.three.txt")
    print(f"wrote {bundle} ({bundle.stat().st_size // 1024} KiB)")


if __name__ == "__main__":
    main()
