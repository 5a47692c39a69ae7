# SPDX-License-Identifier: BSL-1.0
#
# Sourced by the other scripts: the root of the tree as working directory, and how many compilers may run at once.
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# One job a processor, but at least 1.5 GB of memory for each.
jobs=$(nproc)
memory_jobs=$(($(awk '/^MemAvailable:/ {print $2}' /proc/meminfo) / 1500000))
if ((jobs > memory_jobs)); then
  jobs=$((memory_jobs > 0 ? memory_jobs : 1))
fi

# Options of cmake. A compiler cache makes the second build of a tree in the same folder a matter of minutes. What is
# compiled names absolute paths (places of errors), so they are part of the key. CCACHE_DEPEND compares the bytes of every
# header, not the preprocessed text: a precompiled header that was made before a comment changed no longer recognizes
# that file, and defines it twice.
cached=()
if command -v ccache >/dev/null; then
  launcher="env;CCACHE_DEPEND=1;CCACHE_SLOPPINESS=pch_defines,time_macros;ccache"
  cached=("-DCMAKE_CXX_COMPILER_LAUNCHER=$launcher" "-DCMAKE_CUDA_COMPILER_LAUNCHER=$launcher")
fi
