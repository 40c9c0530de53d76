//! Parsing and printing without a server.

use ovsdb::schema::{ColumnType, open_vswitch};
use ovsdb::value::{Datum, Uuid};

use super::options::{Request, parse};
use super::table::{CellFormat, Format, Table, TableStyle};
use super::text::{Style, datum_from_text, datum_text, take_word};

fn column(table: &str, name: &str) -> ColumnType {
    open_vswitch().table(table).unwrap().column(name).unwrap().ty.clone()
}

fn read(table: &str, name: &str, text: &str) -> Result<Datum, String> {
    datum_from_text(text, &column(table, name), &mut |_, _| Uuid::ZERO)
}

/// Parses a value and prints it.
fn check(table: &str, name: &str, text: &str, expected: &str) {
    let ty = column(table, name);
    let shown = read(table, name, text).map(|datum| datum_text(&datum, &ty, Style::Quoted));
    assert_eq!(shown.unwrap_or_else(|error| error), expected, "{table}.{name}={text}");
}

#[test]
fn values() {
    check("Port", "tag", "3", "3");
    check("Port", "tag", "[]", "[]");
    check("Port", "trunks", "3,1, 5-7", "[1, 3, 5, 6, 7]");
    check("Port", "trunks", "9", "[9]");
    check("Interface", "options", "b=c,a=\"x y\"", "{a=\"x y\", b=c}");
    check("Interface", "options", "{ a = 1 }", "{a=\"1\"}");
    check("Interface", "options", "{}", "{}");
    check("Interface", "type", "\"\"", "\"\"");
    check("Interface", "type", "true", "\"true\"");
    check(
        "Interface",
        "type",
        "5f1f2a4e-8a3f-4b8e-b7cf-2a3a1b2c3d4e",
        "\"5f1f2a4e-8a3f-4b8e-b7cf-2a3a1b2c3d4e\"",
    );
    check("Bridge", "stp_enable", "yes", "true");
    check("Bridge", "mirrors", "@m", "[00000000-0000-0000-0000-000000000000]");
}

#[test]
fn values_that_are_wrong() {
    check(
        "Port",
        "tag",
        "9999",
        "constraint violation: 9999 is not in the valid range 0 to 4095 (inclusive)",
    );
    check("Port", "tag", "abc", "\"abc\" is not a valid integer or range");
    check("Port", "tag", "1,2", "1,2: 2 value(s) specified but the maximum number is 1");
    check("Port", "trunks", "1,1", "1,1: set contains duplicate value");
    check(
        "Interface",
        "type",
        "\"a\\u0000\"",
        "\"a\\u0000\": bad quoted string: the database has no strings with a NUL character",
    );
    check("Interface", "type", "a\0", "\"a\\0\": the database has no strings with a NUL character");
    check("Port", "trunks", "[1", "[1: missing \"]\" at end of data");
    check("Port", "trunks", "[1]x", "[1]x: trailing garbage after \"]\"");
    check("Bridge", "stp_enable", "maybe", "\"maybe\" is not a valid boolean (use \"true\" or \"false\")");
    check("Interface", "options", "a=1,a=2", "a=1,a=2: map contains duplicate key");
    check("Bridge", "mirrors", "m", "\"m\" is not a valid UUID");
    let enumeration = read("Bridge", "fail_mode", "x").unwrap_err();
    assert_eq!(
        enumeration,
        "constraint violation: x is not one of the allowed values ([secure, standalone])"
    );
    for text in ["{a:b}", "a", "{a=b", "=", "a==b", "\"", "\\", "\"a=b", "a=\"b\"c", "é=", "{é=é"] {
        assert!(read("Interface", "options", text).is_err(), "{text}");
    }
    for text in ["9-1", "0-99999999", "-1-5", "1-9223372036854775807", "é-1", "--", "1-", "-"] {
        assert!(read("Port", "trunks", text).is_err(), "{text}");
    }
}

#[test]
fn words() {
    for (text, word) in [
        ("a:b", "a"),
        ("\"a:b\"c:d", "\"a:b\"c"),
        ("a\\:b=", "a:b"),
        ("\"\\\"=\"x=", "\"\\\"=\"x"),
        ("", ""),
        ("é=", "é"),
    ] {
        assert_eq!(take_word(&mut &*text), Ok(word.to_string()));
    }
}

fn parse_line(line: &str) -> Result<Vec<String>, String> {
    let words: Vec<String> = line.split(' ').filter(|word| !word.is_empty()).map(String::from).collect();
    let describe = |request: Request| match request {
        Request::Help => vec!["help".into()],
        Request::Commands => vec!["commands".into()],
        Request::Options => vec!["options".into()],
        Request::Version => vec!["version".into()],
        Request::Run(_, commands) => commands
            .iter()
            .map(|call| {
                let options: Vec<String> = call.options.iter().map(|(k, v)| format!("{k}={v}")).collect();
                format!("{}({})[{}]", call.spec.name, call.args.join(","), options.join(","))
            })
            .collect(),
    };
    parse(&words).map(describe)
}

#[test]
fn command_lines() {
    let ok = |line: &str, expected: &[&str]| {
        assert_eq!(parse_line(line), Ok(expected.iter().map(|text| text.to_string()).collect()), "{line}");
    };
    ok("show", &["show()[]"]);
    ok(
        "--may-exist add-br br0 -- --may-exist add-port br0 p0",
        &["add-br(br0)[may-exist=]", "add-port(br0,p0)[may-exist=]"],
    );
    ok("--no-wait -t 5 --db unix:/x -f json --columns=a,b list x", &["list(x)[columns=a,b]"]);
    ok("-- --id=@m create mirror name=m --", &["create(mirror,name=m)[id=@m]"]);
    ok("--columns name list br", &["list(br)[columns=name]"]);
    ok("-h", &["help"]);
    ok("--version", &["version"]);
    let fail = |line: &str, expected: &str| assert_eq!(parse_line(line), Err(expected.into()), "{line}");
    fail("", "missing command name (use --help for help)");
    fail("-- --", "missing command name (use --help for help)");
    fail("foo", "unknown command 'foo'; use --help for help");
    fail("add-prot br0 x", "unknown command 'add-prot' (did you mean 'add-port'?); use --help for help");
    fail("--no-wiat show", "unrecognized option '--no-wiat' (did you mean 'no-wait'?)");
    fail("--foo show", "unrecognized option '--foo'");
    fail("--may-exist list-br", "'list-br' command has no '--may-exist' option");
    fail("add-br", "'add-br' command requires at least 1 arguments");
    fail("-- --may-exist=3 add-br x", "'--may-exist' option on 'add-br' does not accept an argument");
    fail("-- --id create mirror x=y", "missing argument to '--id' option on 'create' command");
    for bad in
        ["--db", "-t", "-t x show", "-x show", "--format=x show", "--no-wait=1 show", "- show", "-- - show"]
    {
        assert!(parse_line(bad).is_err(), "{bad}");
    }
}

#[test]
fn tables() {
    let (name, tag) = (column("Port", "name"), column("Port", "tag"));
    let row = |text: &str, n: Option<i64>| {
        vec![(Datum::atom(text), name.clone()), (n.map_or(Datum::empty_set(), Datum::atom), tag.clone())]
    };
    let table = Table {
        headings: vec!["name".into(), "tag".into()],
        rows: vec![row("a b", None), row("c", Some(5))],
    };
    let print =
        |format, headings| table.print(&TableStyle { format, headings, ..TableStyle::default() }, true);
    let list = "name                : \"a b\"\ntag                 : []\n\nname                : c\ntag                 : 5\n";
    assert_eq!(print(Format::List, true), list);
    assert_eq!(print(Format::Table, true), "name  tag\n----- ---\n\"a b\" []\nc     5\n");
    assert_eq!(print(Format::Csv, false), "\"\"\"a b\"\"\",[]\nc,5\n");
    assert_eq!(
        print(Format::Json, true),
        "{\"data\":[[\"a b\",[\"set\",[]]],[\"c\",5]],\"headings\":[\"name\",\"tag\"]}\n"
    );
    let narrow = TableStyle {
        format: Format::Table,
        max_column_width: 1,
        cells: CellFormat::Text(Style::Bare),
        ..TableStyle::default()
    };
    assert_eq!(table.print(&narrow, false), "\nname tag\n---- ---\na b\nc    5\n");
}
