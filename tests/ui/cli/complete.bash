# Prints the completions of a line whose last word is incomplete.
set -eu
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
COMPREPLY=()
_costprobe_completion costprobe "${COMP_WORDS[COMP_CWORD]}" ""
printf '%s\n' "${COMPREPLY[@]-}"
