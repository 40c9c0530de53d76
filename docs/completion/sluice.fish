complete -c sluice -f -a '(set -l before (commandline -opc); sluice complete-words -- $before[2..-1] (commandline -ct) 2>/dev/null)'
