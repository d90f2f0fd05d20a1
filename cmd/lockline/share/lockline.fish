# fish completion for lockline.

function __lockline_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    if string match -q -- '-*' $current
        set -a words $current
    end
    # TOKEN or TOKEN:DESCRIPTION, with \: for a colon in the token
    for line in ($words[1] $words[2..-1] --generate-shell-completion 2>/dev/null)
        set -l parts (string replace -a '\\:' \x01 -- $line | string split -m 1 :)
        test -n "$parts[1]"; and printf '%s\t%s\n' (string replace -a \x01 : -- $parts[1]) "$parts[2]"
    end
end

complete -c lockline -e
complete -c lockline -f -a '(__lockline_complete)'
