//! The manual page of `sluiced`, made from its options.

use clap::CommandFactory as _;

/// Set to write the page.
const WRITE: &str = "SLUICE_WRITE_PAGES";

#[test]
fn the_manual_page_is_in_step_with_the_options() {
    let mut page = Vec::new();
    let manual = clap_mangen::Man::new(super::Options::command()).section("8").source("Sluice");
    manual.manual("Sluice Manual").date("").render(&mut page).unwrap();
    // The empty date needs quotes, or its neighbour takes its place.
    let page = String::from_utf8(page).unwrap().replacen(" 8  ", " 8 \"\" ", 1);
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/man/sluiced.8");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let is_same = std::fs::read_to_string(&path).is_ok_and(|text| text == page);
    assert!(is_same, "docs/man/sluiced.8 differs: write it: {WRITE}=1 cargo test -p sluiced --bin sluiced");
}
