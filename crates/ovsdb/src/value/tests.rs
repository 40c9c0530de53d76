use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::schema::{BaseType, ColumnType};

fn ty(key: AtomicType, value: Option<AtomicType>, min: u32, max: u32) -> ColumnType {
    ColumnType { key: BaseType::new(key), value: value.map(BaseType::new), min, max }
}

fn parse(json: Value, ty: &ColumnType) -> Result<Datum, String> {
    datum_from_json(&json, ty, &mut NoNames).map_err(|e| e.to_string())
}

#[test]
fn json_forms() {
    let strings = ty(AtomicType::String, None, 0, u32::MAX);
    let map = ty(AtomicType::String, Some(AtomicType::Integer), 0, u32::MAX);
    let cases = [
        (json!("a"), &strings, json!("a")),
        (json!(["set", ["a"]]), &strings, json!("a")),
        (json!(["set", ["b", "a"]]), &strings, json!(["set", ["a", "b"]])),
        (json!(["set", []]), &strings, json!(["set", []])),
        (json!(["map", [["b", 2], ["a", 1]]]), &map, json!(["map", [["a", 1], ["b", 2]]])),
        (json!(["map", []]), &map, json!(["map", []])),
    ];
    for (input, ty, output) in cases {
        assert_eq!(datum_to_json(&parse(input, ty).unwrap()).to_string(), output.to_string());
    }
}

#[test]
fn json_errors() {
    let strings = ty(AtomicType::String, None, 1, 2);
    let map = ty(AtomicType::String, Some(AtomicType::Integer), 0, u32::MAX);
    let cases = [
        (json!(5), &strings, "syntax error"),
        (json!(["set", []]), &strings, "syntax error"),
        (json!(["set", ["a", "b", "c"]]), &strings, "syntax error"),
        (json!(["set", ["a", "a"]]), &strings, "ovsdb error"),
        (json!("a\0b"), &strings, "syntax error"),
        (json!(["map", [["a", 1], ["a", 2]]]), &map, "ovsdb error"),
        (json!(["map", [["a"]]]), &map, "syntax error"),
        (json!(["map", [["a", "b"]]]), &map, "syntax error"),
        (json!(["set", [1]]), &map, "syntax error"),
        (json!(["uuid", "x"]), &ty(AtomicType::Uuid, None, 1, 1), "syntax error"),
        (json!(["named-uuid", "x"]), &ty(AtomicType::Uuid, None, 1, 1), "syntax error"),
    ];
    for (input, ty, kind) in cases {
        let error = parse(input.clone(), ty).unwrap_err();
        assert!(error.starts_with(kind), "{input}: {error}");
    }
}

#[test]
fn integers_may_be_written_as_reals() {
    let integer = ty(AtomicType::Integer, None, 1, 1);
    for (text, expected) in [
        ("1.0", Some(1)),
        ("1e3", Some(1000)),
        ("-0", Some(0)),
        ("9223372036854775807", Some(i64::MAX)),
        ("9223372036854775808", None),
        ("1.5", None),
        ("1e400", None),
    ] {
        let json: Value = serde_json::from_str(text).unwrap();
        assert_eq!(parse(json, &integer).ok(), expected.map(Datum::from), "{text}");
    }
}

#[test]
fn reals_print_like_c() {
    for (x, text) in [
        (0.1, "0.1"),
        (1.0 / 3.0, "0.33333333333333331"),
        (1e20, "1e+20"),
        (1e-7, "1e-07"),
        (123456.789, "123456.789"),
        (-2.5, "-2.5"),
        (4.0, "4"),
        (-0.0, "0"),
        (0.0001, "0.0001"),
        (1.5e300, "1.5e+300"),
    ] {
        assert_eq!(format_real(x), text);
        assert_eq!(datum_to_json(&Datum::atom(x)).to_string(), text);
    }
}

#[test]
fn uuids() {
    let text = "550e8400-e29b-41d4-a716-446655440000";
    assert_eq!(text.parse::<Uuid>().unwrap().to_string(), text);
    assert_eq!(text.to_uppercase().parse::<Uuid>().unwrap().to_string(), text);
    for bad in ["", "550e8400e29b41d4a716446655440000", "{550e8400-e29b-41d4-a716-44665544000}", &text[1..]] {
        assert!(bad.parse::<Uuid>().is_err(), "{bad}");
    }
    let mut source = SeededUuids::new(7);
    let made = source.next_uuid().to_string();
    assert_eq!(&made[14..15], "4");
    assert_ne!(made, source.next_uuid().to_string());
}

#[test]
fn diff_of_a_single_column_is_its_new_value() {
    let (old, new) = (Datum::from(1), Datum::empty_set());
    assert_eq!(diff(&old, &new, true), new);
    assert_eq!(apply_diff(&old, &new, true), new);
}

proptest! {
    #[test]
    fn reals_read_back(x in proptest::num::f64::NORMAL | proptest::num::f64::SUBNORMAL | proptest::num::f64::ZERO) {
        prop_assert_eq!(format_real(x).parse::<f64>().unwrap(), x);
    }

    #[test]
    fn sets_diff_and_apply(a in proptest::collection::vec(0i64..20, 0..12), b in proptest::collection::vec(0i64..20, 0..12)) {
        let (a, b) = (Datum::set(a), Datum::set(b));
        prop_assert_eq!(apply_diff(&a, &diff(&a, &b, false), false), b);
    }

    #[test]
    fn maps_diff_and_apply(a in proptest::collection::vec((0i64..9, 0i64..3), 0..12), b in proptest::collection::vec((0i64..9, 0i64..3), 0..12)) {
        let (a, b) = (Datum::map(a), Datum::map(b));
        let difference = diff(&a, &b, false);
        prop_assert_eq!(apply_diff(&a, &difference, false), b.clone());
        prop_assert_eq!(difference.is_empty(), a == b);
    }

    #[test]
    fn json_round_trip(pairs in proptest::collection::vec((".*", any::<i64>()), 0..8)) {
        let pairs = pairs.into_iter().map(|(k, v)| (k.replace('\0', ""), v));
        let datum = Datum::map(pairs);
        let text = datum_to_json(&datum).to_string();
        let map = ty(AtomicType::String, Some(AtomicType::Integer), 0, u32::MAX);
        prop_assert_eq!(parse(serde_json::from_str(&text).unwrap(), &map).unwrap(), datum);
    }
}
