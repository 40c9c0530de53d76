//! The manual pages of `sluice` and of its commands, made from their options and help texts; completions that ask the program.

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

use crate::completion::{Shell, script};
use crate::{Cli, appctl, ofctl, vsctl};

/// Set to write the pages.
const WRITE: &str = "SLUICE_WRITE_PAGES";

/// A page from the options of a command.
fn of_options(command: Command) -> String {
    let mut page = Vec::new();
    Man::new(command).source("Sluice").manual("Sluice Manual").date("").render(&mut page).unwrap();
    // The empty date needs quotes, or its neighbour takes its place.
    String::from_utf8(page).unwrap().replacen(" 1  ", " 1 \"\" ", 1)
}

/// A page from the help of a command with the syntax of a tool of OVS.
fn of_help(name: &str, about: &str, help: &str) -> String {
    let mut page = Roff::new();
    page.control("TH", [name, "1", "", "Sluice", "Sluice Manual"]);
    page.control("SH", ["NAME"]).text([roman(format!("{name} - {about}"))]);
    page.control("SH", ["DESCRIPTION"]).control("nf", []);
    for line in help.lines() {
        let title = line.ends_with(':') && !line.starts_with(' ');
        let text: Inline = if title { bold(line) } else { roman(line) };
        page.text([text]);
    }
    page.control("fi", []);
    page.control("SH", ["SEE ALSO"]).text([
        bold("sluice"),
        roman("(1), "),
        bold(name.replacen("sluice-", "ovs-", 1)),
        roman("(8), "),
        bold("sluiced-commands"),
        roman("(7), "),
        bold("sluiced.conf.db"),
        roman("(5)"),
    ]);
    page.render().replacen(" 1  ", " 1 \"\" ", 1)
}

/// File names below `docs` with their contents.
fn pages() -> Vec<(String, String)> {
    let mut cli = Cli::command();
    cli.build();
    let mut all = vec![
        ("completion/_sluice".to_string(), script(Shell::Zsh).to_string()),
        ("completion/sluice.fish".to_string(), script(Shell::Fish).to_string()),
        ("man/sluice.1".to_string(), of_options(Cli::command())),
    ];
    for command in cli.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        let name = format!("sluice-{}", command.get_name());
        let program = format!("sluice {}", command.get_name());
        let help = match command.get_name() {
            "vsctl" => vsctl::help(&program),
            "ofctl" => ofctl::help(&program),
            "appctl" | "dpctl" => appctl::help(&program),
            _ => String::new(),
        };
        let about = command.get_about().unwrap().to_string();
        let page = match help.as_str() {
            "" => of_options(command.clone()),
            help => of_help(&name, &about, help),
        };
        all.push((format!("man/{name}.1"), page));
    }
    all
}

#[test]
fn manual_pages_are_in_step_with_the_options() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut wrong = Vec::new();
    for (name, page) in pages() {
        let path = folder.join(&name);
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        if std::fs::read_to_string(&path).ok().as_deref() != Some(page.as_str()) {
            wrong.push(name);
        }
    }
    assert!(
        wrong.is_empty(),
        "docs has other pages: {wrong:?}; write them: {WRITE}=1 cargo test -p sluice --lib manual"
    );
}
