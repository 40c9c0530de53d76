//! Each documented key on a running switch: it is carried out, or the status says why not.

use super::Lab;
use crate::helpers::vsctl;
use std::collections::BTreeSet;
use testkit::{require_netns, require_programs};
use vswitch::settings::{Effect, Setting, Values, table};

const ROWS: [(&str, &str); 4] =
    [("Open_vSwitch", "."), ("Bridge", "br0"), ("Port", "p1"), ("Interface", "p1")];

/// A valid value that asks for something.
fn valid(setting: &Setting) -> String {
    let unwanted = match &setting.effect {
        Effect::Missing { neutral, .. } => neutral.unwrap_or_default(),
        Effect::Fixed { value, .. } => value,
        _ => "",
    };
    let candidates: Vec<String> = match &setting.values {
        Values::Schema => Vec::new(),
        Values::Flag => vec!["true".into(), "false".into()],
        Values::Integer { min, .. } => {
            let least = min.unwrap_or(1);
            vec![least.to_string(), (least + 1).to_string()]
        }
        Values::OneOf(words) => words.iter().map(|word| word.to_string()).collect(),
        Values::Text { example, .. } => vec![example.to_string()],
    };
    candidates.into_iter().find(|value| value != unwanted).expect("a value")
}

fn wrong(setting: &Setting) -> Option<&'static str> {
    match setting.values {
        Values::Text { wrong, .. } => wrong,
        // A disabled session has no other settings.
        _ if setting.name() == "bfd:enable" => Some("true"),
        _ => Some("nonsense"),
    }
}

#[test]
fn each_key_is_carried_out_or_reported() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let settings = || {
        let of_row = |(name, row): (&'static str, &'static str)| {
            let settings = &table(name).unwrap().settings;
            // Interfaces of other types have the options.
            let tried = |s: &&Setting| s.key.is_some() && s.is_read() && s.column != "options";
            settings.iter().filter(tried).map(move |setting| (name, row, setting))
        };
        ROWS.into_iter().flat_map(of_row)
    };
    let reported = || -> BTreeSet<(String, String)> {
        let status: serde_json::Value = serde_json::from_str(&lab.appctl("sluice/status")).unwrap();
        assert_eq!(status["unknown_keys"], serde_json::json!([]));
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_string();
        let all = status["ineffective"].as_array().unwrap().iter();
        all.map(|setting| (text(&setting["table"]), text(&setting["setting"]))).collect()
    };
    let apply = |pick: &dyn Fn(&Setting) -> Option<String>| {
        let set = |(name, row, setting): (&str, &str, &Setting)| {
            Some(format!("-- set {name} {row} {}=\"{}\"", setting.name(), pick(setting)?))
        };
        vsctl(&lab.daemon, &settings().filter_map(set).collect::<Vec<_>>().join(" "));
    };
    vsctl(&lab.daemon, "set Port p1 lacp=active -- set Interface p1 cfm_mpid=5 lldp:enable=true");
    apply(&|setting| Some(valid(setting)));
    let told = reported();
    for (name, _, setting) in settings() {
        let value = valid(setting);
        let expected = setting.effect.notice(&setting.name(), &value).is_some();
        let is_told = told.contains(&(name.to_string(), setting.name()));
        assert_eq!(is_told, expected, "{name} {}={value}", setting.name());
    }
    // The newer name comes before the older one.
    vsctl(&lab.daemon, "remove Open_vSwitch . other_config pmd-sleep-max");
    apply(&|setting| wrong(setting).filter(|_| setting.key != Some("pmd-sleep-max")).map(str::to_string));
    let told = reported();
    for (name, _, setting) in settings().filter(|(.., s)| wrong(s).is_some() && s.name() != "bfd:enable") {
        let is_told = told.contains(&(name.to_string(), setting.name()));
        assert!(is_told || setting.key == Some("pmd-sleep-max"), "{name} {}", setting.name());
    }
}
