# bash completion for lockline, also for bash 3 and without the package bash-completion.

_lockline() {
  local line=${COMP_LINE:0:COMP_POINT} rest word i n=-1
  local -a words=()
  # bash has split URLs and names at colons. Join the parts that have no space between them.
  for ((i = 0; i <= COMP_CWORD; i++)); do
    rest=${line#"${line%%[![:space:]]*}"}
    word=${COMP_WORDS[i]}
    word=${word:0:${#rest}}
    if ((i == 0 || ${#rest} < ${#line})); then
      words[++n]=$word
    else
      words[n]+=$word
    fi
    line=${rest:${#word}}
  done

  # Remove quotes without eval, because eval of an unfinished line could run a command in it.
  local quoted=
  case ${words[n]} in [\"\']*) quoted=yes ;; esac
  for ((i = 0; i <= n; i++)); do
    case ${words[i]} in
      \"*) word=${words[i]#\"} words[i]=${word%\"} ;;
      \'*) word=${words[i]#\'} words[i]=${word%\'} ;;
      *) words[i]=${words[i]//\\/} ;;
    esac
  done
  local current=${words[n]}
  case $current in -*) ;; *) unset "words[n]" ;; esac

  # bash replaces only the part of the word after its last break character, such as a colon. So leave out the
  # part before it, which stays on the line.
  local stays=
  if [[ ! $quoted ]]; then
    for ((i = ${#current}; i > 0; i--)); do
      case ${current:i-1:1} in
        [:=@]) [[ $COMP_WORDBREAKS == *"${current:i-1:1}"* ]] && break ;;
      esac
    done
    stays=${current:0:i}
  fi

  COMPREPLY=()
  local offer about
  while IFS= read -r line; do # TOKEN or TOKEN:DESCRIPTION, with \: for a colon in the token
    line=${line//\\:/$'\001'}
    offer=${line%%:*}
    about=${line#"$offer"}
    offer=${offer//$'\001'/:}
    [[ $offer && $offer == "$current"* ]] || continue
    offer=${offer#"$stays"}
    [[ $quoted ]] || printf -v offer %q "$offer"
    if [[ $COMP_TYPE == 63 && $about ]]; then # the completions are only listed
      offer+="  -- ${about#:}"
    fi
    COMPREPLY[${#COMPREPLY[@]}]=$offer
  done < <("${words[0]/#\~\//$HOME/}" "${words[@]:1}" --generate-shell-completion 2>/dev/null)
}

complete -o bashdefault -o default -F _lockline lockline
