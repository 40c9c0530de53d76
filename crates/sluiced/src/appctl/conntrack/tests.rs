use super::*;

fn words(line: &str) -> Vec<String> {
    line.split(' ').filter(|w| !w.is_empty()).map(String::from).collect()
}

#[test]
fn words_are_read_in_any_order_but_for_the_datapath() {
    let args = words("-m dp zone=7 -s");
    let read = Words::parse(&args, &["-m", "-s"]).and_then(Words::no_more).unwrap();
    assert!(read.verbose && read.statistics);
    assert_eq!((read.datapath.as_deref(), read.zone), (Some("dp"), Some(7)));
    let args = vec!["zone=0".to_string(), String::new(), "ct_tp_dst=5".to_string()];
    let read = Words::parse(&args, &[]).unwrap();
    assert_eq!((read.datapath, read.zone, &read.rest[..]), (None, Some(0), &args[1..]));
    for (line, why) in [
        ("-x", "Unrecognized option -x"),
        ("zone=70000", "failed to parse zone (Invalid argument)"),
        ("zone=+7", "failed to parse zone (Invalid argument)"),
        ("zone=1 zone=2", "zone=2: a zone is given already"),
        ("dp more", "invalid argument more (Invalid argument)"),
        ("zone=1 x=3", "invalid argument x=3 (Invalid argument)"),
    ] {
        let args = words(line);
        let read = Words::parse(&args, &["-m"]).and_then(Words::no_more);
        assert_eq!(read.err().as_deref(), Some(why), "{line}");
    }
}
