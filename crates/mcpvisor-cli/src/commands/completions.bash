_mcpvisor_words() {
    local cur="$2" word command="" config="" option="" words=0 reply name
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        if [[ -n "${option}" ]]; then
            # "--config=FILE" is three words for bash.
            [[ "${word}" == "=" ]] && continue
            [[ "${option}" == --config ]] && config="${word}"
            option=""
            continue
        fi
        case "${word}" in
            --config|--timeout|--args|--out|--hash|--seed|--seconds) option="${word}" ;;
            -*) ;;
            *)
                if [[ -z "${command}" ]]; then
                    command="${word}"
                else
                    words=$((words + 1))
                fi
                ;;
        esac
    done
    if [[ -n "${option}" || "${cur}" == -* ]]; then
        _mcpvisor "$@"
        return
    fi
    COMPREPLY=()
    case "${command}" in
        call|prompt|read|get|tools|prompts|resources|templates|approve|doctor)
            if ((words == 0)); then
                # Not compgen -W: it would run what a name of the config says.
                while IFS= read -r name; do
                    [[ "${name}" == "${cur}"* ]] && COMPREPLY+=("$(printf %q "${name}")")
                done < <("${1/#\~/${HOME}}" ${config:+--config "${config/#\~/${HOME}}"} server-names 2>/dev/null)
            fi
            ;;
        *)
            _mcpvisor "$@"
            # Options have a common beginning, which would be inserted.
            reply=("${COMPREPLY[@]}")
            COMPREPLY=()
            for word in "${reply[@]}"; do
                [[ "${word}" != -* ]] && COMPREPLY+=("${word}")
            done
            ;;
    esac
    # No file names where none is expected.
    compopt +o default +o bashdefault 2>/dev/null
    return 0
}

