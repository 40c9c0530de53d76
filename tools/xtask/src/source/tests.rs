use super::*;

fn words(text: &str) -> Vec<String> {
    Source::parse(text).tokens.into_iter().map(|t| t.text).collect()
}

#[test]
fn literals_and_comments_are_no_code() {
    let cases: &[(&str, &[&str])] = &[
        ("let a = \"todo!() // x\";", &["let", "a", "=", "\"\"", ";"]),
        ("r#\"a \" b\"# x", &["\"\"", "x"]),
        ("br##\"a \"# b\"## x", &["\"\"", "x"]),
        ("b\"a\\\"b\" x", &["\"\"", "x"]),
        ("r#type x", &["r", "#", "type", "x"]),
        ("'a' 'b: '\\'' '\\u{1F}' '{' x", &["\"\"", "'", "b", ":", "\"\"", "\"\"", "\"\"", "x"]),
        ("b'\\n' b'{' x", &["\"\"", "\"\"", "x"]),
        ("<'a, 'b> f", &["<", "'", "a", ",", "'", "b", ">", "f"]),
        ("a /* b /* c */ d */ e", &["a", "e"]),
        ("a // b\nc", &["a", "c"]),
        ("std::fs", &["std", "::", "fs"]),
        ("'", &["'"]),
        ("\"open", &["\"\""]),
        ("/* open", &[]),
    ];
    for (text, want) in cases {
        assert_eq!(words(text), *want, "{text}");
    }
}

#[test]
fn lines_are_kept() {
    let source = Source::parse("a\n/* x\ny */ b\n\"1\n2\" c // z\nd");
    let lines: Vec<_> = source.tokens.iter().map(|t| (t.text.as_str(), t.line)).collect();
    assert_eq!(lines, [("a", 1), ("b", 3), ("\"\"", 4), ("c", 5), ("d", 6)]);
    let comments: Vec<_> = source.comments.iter().map(|c| (c.text.as_str(), c.line)).collect();
    assert_eq!(comments, [("/* x", 2), ("y */", 3), ("// z", 5)]);
    assert_eq!(source.lines, 6);
    assert_eq!(source.strings, [(4, "1\n2".to_owned())]);
    let strings = Source::parse("a(\"\\\"b\", r#\"c\" d\"#, b\"e\", 'f')").strings;
    assert_eq!(strings, [(1, "\\\"b".to_owned()), (1, "c\" d".to_owned()), (1, "e".to_owned())]);
}

#[test]
fn items_end_at_their_body_or_semicolon() {
    let source = Source::parse("fn a(x: [u8; 4]) -> [u8; 2] { { } } fn b();");
    let end = source.item_end(0);
    assert!(source.spells(end, &["}", "fn", "b"]));
    assert!(source.spells(source.item_end(end + 1), &[";"]));
}
