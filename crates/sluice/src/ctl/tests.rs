use super::options::Options;
use super::{Places, identity, start};
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

fn parse(line: &str) -> Result<Options, clap::Error> {
    Line::try_parse_from(std::iter::once("ctl").chain(line.split_whitespace())).map(|line| line.options)
}

fn places() -> Places {
    Places { run: "/r".into(), log: "/l".into(), database: "/d".into(), settings: "/s".into() }
}

#[test]
fn arguments_of_the_daemon_are_those_of_ovs_ctl() {
    let common = "-vconsole:emer -vsyslog:err -vfile:info";
    let files = "--no-chdir --log-file=/l/ovs-vswitchd.log --pidfile=/r/ovs-vswitchd.pid --detach";
    let daemon = "--ovs-vswitchd-options=--disable-system";
    for (line, middle, end) in [
        ("start", "--mlockall", "--monitor"),
        ("--no-mlockall start --no-monitor --system-id=random", "", ""),
        ("start --ovs-user=a:b", "--mlockall --user=a:b", "--monitor"),
        (
            "restart --system-type=T --system-version=V",
            "--mlockall --system-type=T --system-version=V",
            "--monitor",
        ),
        (&format!("start {daemon} --no-mlockall"), "--disable-system", "--monitor"),
    ] {
        let words = start::arguments(&parse(line).unwrap(), &places());
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        let expected = format!("{common} {middle} {files} {end}");
        assert_eq!(words, expected.split_whitespace().collect::<Vec<_>>(), "{line}");
    }
    let follower = start::arguments(&parse("start --no-ovsdb-server").unwrap(), &places());
    assert_eq!(follower[0], "unix:/r/db.sock");
}

#[test]
fn wrong_lines_are_refused() {
    for line in
        ["", "bogus", "start start", "start --bogus", "start --external-id=x", "start --external-id==x"]
    {
        assert!(parse(line).is_err(), "{line}");
    }
    for (file, folder) in [("/a/conf.db", Some("/a")), ("/a/other.db", None), ("/", None)] {
        let found = parse(&format!("start --db-file={file}")).unwrap().database_folder();
        assert_eq!(found.ok().flatten().as_deref(), folder.map(std::path::Path::new), "{file}");
    }
}

#[test]
fn any_text_is_an_external_id() {
    let options = parse("start --external-id=a=b=c --external-id=k=\"q\"").unwrap();
    let words = identity::words(&options, "id", "/r u n");
    assert_eq!(
        words[4..],
        [
            "external-ids:\"system-id\"=\"id\"",
            "external-ids:\"rundir\"=\"/r u n\"",
            "external-ids:\"a\"=\"b=c\"",
            "external-ids:\"k\"=\"\\\"q\\\"\""
        ]
    );
    assert_eq!(identity::each(&["del-br"], ["a", "b"].into_iter()).join(" "), "-- del-br a -- del-br b");
    assert!(identity::each(&["del-br"], [].into_iter()).is_empty());
}
