#!/usr/bin/env bash
# Installs the Debian packages that are missing, if this user may (root, apt-get present). Otherwise says in one line what
# is missing. Fails only when nothing can be built without it.
set -u
python=${PYTHON:-python3}

required=()
optional=()
command -v "$python" >/dev/null || required+=(python3)
command -v g++ >/dev/null || required+=(g++)
if command -v "$python" >/dev/null; then
  "$python" -c 'import ensurepip, venv' 2>/dev/null || required+=(python3-venv)
  "$python" -c 'import os, sysconfig; open(os.path.join(sysconfig.get_paths()["include"], "Python.h"))' 2>/dev/null ||
    required+=(python3-dev)
fi
[ -e /usr/include/gtest/gtest.h ] || [ -e /usr/local/include/gtest/gtest.h ] || optional+=(libgtest-dev)
command -v ccache >/dev/null || optional+=(ccache)

missing=("${required[@]}" "${optional[@]}")
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  echo "Installing system packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  if apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; then
    exit 0
  fi
  echo "apt-get failed (see above)."
fi

without=
[[ " ${missing[*]} " == *" libgtest-dev "* ]] && without+=" Without libgtest-dev there are no C++ tests and make test fails."
[[ " ${missing[*]} " == *" ccache "* ]] && without+=" Without ccache rebuilds are slower."
echo "Missing system packages: ${missing[*]} (Debian: apt-get install ${missing[*]}).$without"
[ ${#required[@]} -eq 0 ]
