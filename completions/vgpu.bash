# SPDX-License-Identifier: Apache-2.0
# Completion of vgpu in bash. Commands, options and what an option's value is come from vgpu's own
# --help: "  --region FILE" takes a file, "  --pid PID" a process.

# What the command's --help lists: "--option VALUE", one a line. $1 is vgpu, $2 the command.
_vgpu_options() {
    "$1" "$2" --help 2>/dev/null | sed -n 's/^  \(-h, \)\{0,1\}\(--[a-z-]*\)\(\[\{0,1\}[= ]\([A-Z]*\).*\)\{0,1\}/\2 \4/p'
}

_vgpu_commands() {
    "$1" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\)  *[a-z].*/\1/p'
}

_vgpu() {
    local word=${COMP_WORDS[COMP_CWORD]} last=${COMP_WORDS[COMP_CWORD - 1]} vgpu=${COMP_WORDS[0]}
    local command=${COMP_WORDS[1]} options option kind i
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_vgpu_commands "$vgpu") help --help --version" -- "$word")
        return
    fi
    if [ "$command" = help ]; then
        [ "$COMP_CWORD" -eq 2 ] && mapfile -t COMPREPLY < <(compgen -W "$(_vgpu_commands "$vgpu")" -- "$word")
        return
    fi
    options=$(_vgpu_options "$vgpu" "$command")
    # Behind the first word that is no option, or "--", stands a command of another kind.
    for ((i = 2; i < COMP_CWORD; i++)); do
        kind=
        while read -r option value; do
            [ "$option" = "${COMP_WORDS[i]}" ] && kind=$value
        done <<<"$options"
        case ${COMP_WORDS[i]} in
        --) [ "$command" = run ] || [ "$command" = doctor ] || return ;;
        --sim) continue ;; # its value is behind a "=", which readline takes for a word
        =)
            ((i++))
            continue
            ;;
        -*)
            [ -n "$kind" ] && ((i++))
            continue
            ;;
        *) [ "$command" = run ] || continue ;;
        esac
        [ "${COMP_WORDS[i]}" = -- ] && ((i++))
        if declare -F _command_offset >/dev/null; then
            _command_offset "$i"
        elif [ "$COMP_CWORD" -eq "$i" ]; then
            mapfile -t COMPREPLY < <(compgen -c -- "$word")
        else
            mapfile -t COMPREPLY < <(compgen -f -- "$word")
        fi
        return
    done
    kind=
    while read -r option value; do
        [ "$option" = "$last" ] && [ "$last" != --sim ] && kind=$value
    done <<<"$options"
    case $kind in
    FILE | LIST)
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        ;;
    PID) mapfile -t COMPREPLY < <(compgen -W "$(cd /proc && printf '%s\n' [0-9]*)" -- "$word") ;;
    ?*) ;; # a size or a number: nothing to offer
    *)
        case $command:$word in
        *:-*) mapfile -t COMPREPLY < <(compgen -W "${options//$'\n'/ }" -- "$word") ;;
        run:*) mapfile -t COMPREPLY < <(compgen -c -- "$word") ;;
        region:*)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$word")
            ;;
        esac
        ;;
    esac
}

complete -F _vgpu vgpu
