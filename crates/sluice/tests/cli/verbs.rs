//! Every command of the stock tools is a command here: their own lists of commands are walked.

use testkit::{Cmd, require_programs};

use crate::server::sluice;

/// Commands of our tool, as its completion knows them.
fn ours(tool: &str) -> Vec<String> {
    let words = sluice().args(["complete-words", "--", tool, ""]).run().unwrap().stdout;
    words.lines().map(String::from).collect()
}

/// First words of the lines of a list of commands, without its title.
fn listed(text: &str) -> Vec<String> {
    text.lines().skip(1).filter_map(|line| Some(line.split_whitespace().next()?.to_string())).collect()
}

/// Commands in a help text: indented by two, `[OPTION] NAME ARGUMENT...  what it does`, until the options begin.
fn in_help(text: &str) -> Vec<String> {
    let lines = text.lines().take_while(|line| !line.contains("connection methods") && *line != "Options:");
    let words = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   ")).filter_map(|line| {
        line.split_whitespace().find(|word| !word.starts_with('[') && !word.starts_with('-'))
    });
    words.filter(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '-')).map(String::from).collect()
}

fn check(tool: &str, stock: &[String], least: usize) {
    let ours = ours(tool);
    let missing: Vec<&String> = stock.iter().filter(|name| !ours.contains(name)).collect();
    assert!(missing.is_empty(), "sluice {tool} lacks {missing:?}");
    assert!(stock.len() >= least, "only {stock:?}");
}

#[test]
fn no_command_of_ovs_ofctl_is_missing() {
    require_programs!("ovs-ofctl");
    let help = Cmd::new("ovs-ofctl").args(["--help"]).run().unwrap().stdout;
    check("ofctl", &in_help(&help), 50);
    let all = listed(&Cmd::new("ovs-ofctl").args(["list-commands"]).run().unwrap().stdout);
    check("ofctl", &all, 66);
}

#[test]
fn no_command_of_ovs_vsctl_is_missing() {
    require_programs!("ovs-vsctl");
    let help = Cmd::new("ovs-vsctl").args(["--help"]).run().unwrap().stdout;
    let until_databases = help.split("Potentially unsafe database commands").next().unwrap_or_default();
    check("vsctl", &in_help(until_databases), 45);
    let text = Cmd::new("ovs-vsctl").args(["--commands"]).run().unwrap().stdout;
    let names = text.lines().filter_map(|line| Some(line.split(',').nth(1)?.to_string()));
    check("vsctl", &names.collect::<Vec<_>>(), 50);
    // Commands of Open vSwitch 3.5, which Debian's tool lacks.
    check("vsctl", &["set-zone-limit", "del-zone-limit", "list-zone-limits"].map(String::from), 3);
}

/// Commands of the daemon, which `sluice dpctl` sends to it.
const DAEMON: &str = include_str!("../../../../docs/commands.md");

#[test]
fn no_command_of_ovs_dpctl_is_missing() {
    require_programs!("ovs-dpctl");
    let help = Cmd::new("ovs-dpctl").args(["--help"]).run().unwrap().stdout;
    let all = listed(&Cmd::new("ovs-dpctl").args(["list-commands"]).run().unwrap().stdout);
    let in_help = in_help(help.split("Each IFACE").next().unwrap_or_default());
    assert!(all.len() > 30 && in_help.len() > 15, "{all:?} {in_help:?}");
    for name in all.iter().chain(&in_help).filter(|name| *name != "help") {
        assert!(DAEMON.contains(&format!("| `dpctl/{name}` |")), "sluice dpctl {name} is missing");
    }
}

/// Long options that a text names.
fn options_in(text: &str) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '-';
    let words = text.split(|c: char| !is_part(c)).filter(|word| {
        word.strip_prefix("--").is_some_and(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
    });
    let mut words: Vec<String> = words.map(String::from).collect();
    words.sort();
    words.dedup();
    words
}

/// The lists of options that the stock tools print, and their help.
#[test]
fn no_option_of_the_stock_tools_is_missing() {
    require_programs!("ovs-ofctl", "ovs-vsctl", "ovs-dpctl", "ovs-appctl");
    for (tool, list, least) in [
        ("ofctl", "--option", 40),
        ("vsctl", "--options", 25),
        ("dpctl", "--option", 14),
        ("appctl", "--option", 10),
    ] {
        let print = |option: &str| Cmd::new(format!("ovs-{tool}")).args([option]).run().unwrap().stdout;
        let words = sluice().args(["complete-words", "--", tool, "--"]).run().unwrap().stdout;
        let ours = options_in(&words);
        let mut theirs = options_in(&print(list));
        assert!(theirs.len() >= least, "{tool}: {theirs:?}");
        // Options of single commands of ovs-vsctl stand in the help alone, with those of the program.
        if tool != "vsctl" {
            theirs.extend(options_in(&print("--help")));
        }
        let missing: Vec<&String> = theirs.iter().filter(|option| !ours.contains(option)).collect();
        assert!(missing.is_empty(), "sluice {tool} lacks {missing:?}");
        // The list is our own answer to the same option.
        let listed = options_in(&sluice().args([tool, list]).run().unwrap().stdout);
        assert!(
            listed.iter().all(|option| ours.contains(option)) && listed.len() >= least,
            "{tool}: {listed:?}"
        );
    }
    let ours = sluice().args(["vsctl", "--commands"]).run().unwrap().stdout;
    for line in ["[--may-exist] ,add-port,", "[--id=] ,create,", ",del-ssl,"] {
        assert!(ours.contains(line), "{line} in {ours}");
    }
}
