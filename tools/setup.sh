# Sourced by demo.sh and test.sh: a virtual environment in .venv with the package installed.
# Stops with one line when something is missing that it cannot install.

cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\n== %s\n' "$*"; }
stop() {
    printf 'stopped: %s\n' "$*" >&2
    exit 1
}

setup() {
    command -v python3 >/dev/null || stop "python3 is not installed"
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || stop "Python 3.11 or newer is needed, this is $(python3 --version)"
    [ "$(uname -m)" = x86_64 ] || stop "this version builds on x86-64 only, not on $(uname -m)"

    local package missing=()
    if command -v dpkg-query >/dev/null; then
        while read -r package; do
            dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
        done < <(grep -v '^#' tools/debian-packages.txt)
    else
        stop "this is no Debian; install what tools/debian-packages.txt names, and then: pip install ."
    fi
    if [ ${#missing[@]} -gt 0 ]; then
        say "installing Debian packages: ${missing[*]}"
        local as_root=()
        if [ "$(id -u)" != 0 ]; then
            command -v sudo >/dev/null || stop "needs root or sudo to install: ${missing[*]}"
            as_root=(sudo)
        fi
        "${as_root[@]}" apt-get update -qq || stop "apt-get update failed"
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null 2>&1 ||
            stop "apt-get could not install: ${missing[*]}"
    fi

    say "building the package and installing it into .venv"
    [ -x .venv/bin/python ] || python3 -m venv .venv || stop "python3 -m venv failed"
    export PATH="$PWD/.venv/bin:$PATH"
    # What pyproject.toml names for building, installed here so that the build folder can be used again.
    local requires
    requires=$(.venv/bin/python -c 'import tomllib; print("\n".join(tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"]))')
    pip_install $requires
    if command -v ccache >/dev/null; then export CC="ccache gcc" CXX="ccache g++"; fi
    pip_install --no-build-isolation --force-reinstall --no-deps --config-settings=build-dir=build/wheel .
    pip_install "clika-runtime$1"
    PKG_CONFIG_PATH=$(.venv/bin/python -c 'import clika_runtime; print(clika_runtime.pkgconfig_dir())') ||
        stop "the installed package does not import"
    export PKG_CONFIG_PATH
}

pip_install() { .venv/bin/pip install --quiet --disable-pip-version-check "$@" || stop "pip could not install: $*"; }
