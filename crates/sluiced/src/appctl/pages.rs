//! Pages about all commands, made from their rows: `docs/commands.md`, the manual page, the completion for bash.

use super::{Command, Rows, sorted, table};
use std::path::Path;

/// Set to write the pages.
const WRITE: &str = "SLUICE_WRITE_PAGES";

/// A part of the pages: title, explanation, commands.
struct Section {
    title: &'static str,
    about: &'static str,
    commands: Vec<&'static dyn Command>,
}

fn sections() -> [Section; 4] {
    let section =
        |title, about, tables: &[Rows]| Section { title, about, commands: sorted(tables.iter().copied()) };
    [
        section("Commands of the switch", "Every switch has them.", &table::switch()),
        section(
            "Commands of the switch and of its database server",
            "Both have them, for the log and the connection.",
            table::COMMON,
        ),
        section(
            "Commands of the dummy mode",
            "A switch that runs with --enable-dummy has them.",
            table::DUMMY,
        ),
        section(
            "Commands of the database server",
            "The server inside the switch has them, at the target ovsdb-server.",
            table::DATABASE,
        ),
    ]
}

const MD_HEAD: &str = "\
# Commands

<!-- Made from the rows of crates/sluiced/src/appctl by a test. SLUICE_WRITE_PAGES=1 writes this file. -->

`ovs-appctl COMMAND [ARGUMENT]...` and `sluice appctl COMMAND [ARGUMENT]...` send a command to the running switch, with
`-t ovsdb-server` to the database server inside it. `sluice dpctl show` is short for `sluice appctl dpctl/show`. Arguments
in brackets are optional. `sluice/help` prints this list on the running switch.

With `--format json` the reply is JSON. `dpif/show`, `fdb/show`, `list-commands`, `ovs/route/rule/show` and `ovs/route/show`
have the JSON of OVS 4.0, `drops/show` has values of its own. All others wrap their text: `{\"reply\": TEXT, \"reply-format\": \"plain\"}`. Errors are text.
";

fn markdown() -> String {
    let mut out = MD_HEAD.to_string();
    for Section { title, about, commands } in sections() {
        out +=
            &format!("\n## {title}\n\n{about}\n\n| command | arguments | purpose |\n| --- | --- | --- |\n");
        for c in commands {
            let usage = match c.usage().as_str() {
                "" => String::new(),
                usage => format!("`{}`", usage.replace('|', "\\|")),
            };
            out += &format!("| `{}` | {usage} | {} |\n", c.name(), c.help());
        }
    }
    out
}

const MAN_HEAD: &str = r#".\" Made from the rows of crates/sluiced/src/appctl by a test. SLUICE_WRITE_PAGES=1 writes this file.
.TH SLUICED\-COMMANDS 7 "" Sluice "Sluice Manual"
.SH NAME
sluiced\-commands \- commands of the control socket of sluiced
.SH SYNOPSIS
.B ovs\-appctl
.RI [ OPTION ]...
.I COMMAND
.RI [ ARGUMENT ]...
.br
.B sluice appctl
.RI [ OPTION ]...
.I COMMAND
.RI [ ARGUMENT ]...
.SH DESCRIPTION
Both programs send a command to the running switch, with
.B \-t ovsdb\-server
to the database server inside it.
Arguments in brackets are optional.
.B sluice/help
prints this list on the running switch.
.PP
With
.B \-\-format json
the reply is JSON.
.BR dpif/show ,
.BR fdb/show ,
.BR list\-commands ,
.B ovs/route/rule/show
and
.B ovs/route/show
have the JSON of Open vSwitch 4.0.
All others wrap their text: {"reply": TEXT, "reply\-format": "plain"}.
Errors are text.
"#;

const MAN_TAIL: &str = r#".SH "SEE ALSO"
.BR ovs\-appctl (8),
.BR ovs\-vswitchd (8)
"#;

/// Text without special characters of roff.
fn roff(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

fn manual() -> String {
    let mut out = MAN_HEAD.to_string();
    for Section { title, about, commands } in sections() {
        out += &format!(".SH \"{}\"\n{}\n", title.to_uppercase(), roff(about));
        for c in commands {
            let separator = if c.usage().is_empty() { "" } else { " " };
            out += &format!(".TP\n\\fB{}\\fR{separator}{}\n", roff(c.name()), roff(&c.usage()));
            out += &format!("{}.\n", roff(c.help()));
        }
    }
    out + MAN_TAIL
}

const BASH_HEAD: &str = "\
# Completion of sluice for bash.
# Made from the rows of crates/sluiced/src/appctl by a test. SLUICE_WRITE_PAGES=1 writes this file.

";

const BASH_TAIL: &str = r#"_sluice() {
    local IFS=$' \t\n' cur=${COMP_WORDS[COMP_CWORD]} prefix= command= at
    local found
    found=$(sluice complete-words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    mapfile -t COMPREPLY < <([ -z "$found" ] || printf '%s\n' "$found")
    [ "$COMP_CWORD" -gt 1 ] || return
    case ${COMP_WORDS[1]} in
    appctl) ;;
    dpctl) prefix=dpctl/ ;;
    *) return ;;
    esac
    for ((at = 2; at < COMP_CWORD; at++)); do
        case ${COMP_WORDS[at]} in
        -t | -T | -f | --target | --timeout | --format) ((at++)) ;;
        -*) ;;
        *) command=$prefix${COMP_WORDS[at]} && break ;;
        esac
    done
    if [ -n "$command" ]; then
        COMPREPLY+=($(compgen -W "$(_sluice_arguments "$command")" -- "$cur"))
    elif [ -z "$found" ]; then
        # No switch runs.
        COMPREPLY=($(compgen -W "$_sluice_commands" -- "$prefix$cur"))
        COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
    fi
}
complete -o default -F _sluice sluice
"#;

/// The words of a usage that stand for themselves: options, choices, and keys before a value.
fn literals(usage: &str) -> Vec<String> {
    let mut found = Vec::new();
    for word in usage.split([' ', '[', ']', '{', '}']) {
        if let Some((key, _)) = word.split_once('=') {
            found.push(format!("{key}="));
            continue;
        }
        let is_choice = word.contains('|') && word.split('|').all(|a| !a.is_empty());
        let stands = |a: &&str| is_choice || a.starts_with('-') && a.len() > 1;
        found.extend(word.split('|').filter(stands).map(String::from));
    }
    found.retain(|word| word.starts_with(|c: char| c == '-' || c.is_ascii_lowercase()));
    found.sort();
    found.dedup();
    found
}

fn completion() -> String {
    let [switch, common, dummy, _] = sections();
    let mut commands = [switch.commands, common.commands, dummy.commands].concat();
    commands.sort_by_key(|c| c.name());
    let names: Vec<&str> = commands.iter().map(|c| c.name()).collect();
    let mut out = format!("{BASH_HEAD}_sluice_commands='{}'\n\n", names.join("\n"));
    out += "# Words that a command takes.\n_sluice_arguments() {\n    case $1 in\n";
    for c in commands {
        let words = literals(&c.usage());
        if !words.is_empty() {
            out += &format!("    {}) echo '{}' ;;\n", c.name(), words.join(" "));
        }
    }
    out + "    esac\n}\n\n" + BASH_TAIL
}

/// Compares a page with its file, or writes it; returns the fault.
fn check(name: &str, page: &str) -> Option<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    if std::env::var_os(WRITE).is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, page).unwrap();
    }
    let is_same = std::fs::read_to_string(&path).is_ok_and(|text| text == page);
    (!is_same).then(|| format!("docs/{name} differs from the rows"))
}

#[test]
fn pages_are_in_step_with_the_rows() {
    let pages = [
        ("commands.md", markdown()),
        ("man/sluiced-commands.7", manual()),
        ("completion/sluice.bash", completion()),
        ("drops.md", super::drops::page()),
    ];
    let faults: Vec<String> = pages.iter().filter_map(|(name, page)| check(name, page)).collect();
    let remedy = format!("write them: {WRITE}=1 cargo test -p sluiced --lib pages");
    assert!(faults.is_empty(), "{}\n{remedy}", faults.join("\n"));
}

#[test]
fn words_of_a_usage_stand_for_themselves() {
    for (usage, expected) in [
        ("", ""),
        ("bridge port vlan mac", ""),
        ("[interface] normal|false|true", "false normal true"),
        ("[-m] [--names | --no-names] [dp] [filter=match]", "--names --no-names -m filter="),
        ("{[dp_name] odp_flow | bridge br_flow} [-generate | packet]", "-generate"),
        ("[table=all|id]", "table="),
        ("{spec | PATTERN:destination:pattern}", ""),
    ] {
        assert_eq!(literals(usage).join(" "), expected, "{usage}");
    }
}

/// The script completes commands and their words while no switch runs.
#[test]
fn bash_completes_commands() {
    for (line, expected) in [
        ("appctl fdb/sh", "fdb/show"),
        ("appctl -t x --format=json vlog/lis", "vlog/list vlog/list-pattern"),
        ("dpctl dump-d", "dump-dps"),
        ("appctl bfd/set-forwarding p1 n", "normal"),
        ("vsctl list-b", ""),
    ] {
        let script = format!(
            "{}\nsluice() {{ :; }}\nCOMP_WORDS=(sluice {line})\nCOMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n\
             _sluice\necho \"${{COMPREPLY[*]}}\"",
            completion()
        );
        let out = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), expected, "{line}: {out:?}");
    }
}
