#[test]
fn the_corpora_are_replayed() {
    type Target = fn(&[u8]);
    let targets: [(&str, Target); 6] = [
        ("messages", crate::fuzz::messages),
        ("upcall", crate::fuzz::upcall),
        ("connection", crate::fuzz::connection),
        ("timeout_policy", crate::fuzz::timeout_policy),
        ("flow_reply", crate::fuzz::flow_reply),
        ("told", crate::fuzz::told),
    ];
    for (folder, target) in targets {
        testkit::replay_corpus(format!("{}/corpus/{folder}", env!("CARGO_MANIFEST_DIR")), target);
    }
}
