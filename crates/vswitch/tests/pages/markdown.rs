//! docs/columns.md.

use vswitch::settings::{Setting, TableRows};

const HEAD: &str = "\
# Columns and keys

The `Open_vSwitch` database (schema 8.8.0): each column and documented key, and its effect in this version. Made from the
rows in `crates/vswitch/src/settings`; the manual page sluiced.conf.db(5) has the same text. `sluice status` and `sluice
check` list settings that are refused, have no effect or another one, and keys that no setting has.
";

/// The page.
pub(super) fn page(tables: &[TableRows]) -> String {
    let mut out = HEAD.to_string();
    for table in tables {
        out += &format!(
            "\n## {}\n\n{}\n\n| setting | values | effect | purpose |\n| --- | --- | --- | --- |\n",
            table.name, table.help
        );
        table.settings.iter().for_each(|setting| out += &line(table.name, setting));
    }
    out
}

fn line(table: &str, setting: &Setting) -> String {
    let types = match setting.types.as_slice() {
        [] => String::new(),
        types => format!(" ({})", types.join(", ")),
    };
    let values = super::values(table, setting);
    let effect = super::effect(setting, |module| format!(" by `{module}`"), |name| format!("`{name}`"));
    format!("| `{}`{types} | {values} | {effect} | {} |\n", setting.name(), setting.help)
}
