//! The manual page, in the man macros of troff.

use vswitch::settings::{Setting, TableRows};

const HEAD: &str = r#".\" Made from crates/vswitch/src/settings.
.TH sluiced.conf.db 5 "" "Sluice" "Sluice"
.SH NAME
sluiced.conf.db \- settings of sluiced in the Open_vSwitch database
.SH DESCRIPTION
.BR sluiced (8)
reads its settings from the database
.BR Open_vSwitch ,
schema 8.8.0, and writes its status there, as
.BR ovs-vswitchd (8)
does. This page lists each column and each documented key, with its values and its effect in this version.
.PP
.B sluice status
and
.B sluice check
list settings that are refused, have no effect or another one, and keys that no setting has. The status columns of
.BR Bridge ,
.BR Port ,
.BR Interface ,
.B Controller
and
.B Manager
have these notices under the key
.BR notice ,
and
.B Interface.error
has the error of an interface.
"#;

/// The page.
pub(super) fn page(tables: &[TableRows]) -> String {
    let mut out = HEAD.to_string();
    for table in tables {
        out += &format!(".SH \"{} TABLE\"\n{}\n", table.name, text(table.help));
        table.settings.iter().for_each(|setting| out += &entry(table.name, setting));
    }
    out + ".SH SEE ALSO\n.BR sluiced (8),\n.BR sluice (1),\n.BR ovs-vswitchd.conf.db (5)\n"
}

fn entry(table: &str, setting: &Setting) -> String {
    let types = match setting.types.as_slice() {
        [] => String::new(),
        types => format!(" of type {}", types.join(", ")),
    };
    let values = match super::values(table, setting) {
        values if values.is_empty() => values,
        values => format!(": {}", text(&values)),
    };
    let effect = super::effect(setting, |_| String::new(), str::to_string);
    let head = format!("\\fB{}\\fR{}{values}", text(&setting.name()), text(&types));
    format!(".TP\n{head}\n{}\n.br\nEffect: {}.\n", text(setting.help), text(&effect))
}

/// Text for troff: no line begins with a control character, names in backquotes are bold.
fn text(text: &str) -> String {
    let mut out = String::new();
    for (place, part) in text.split('`').enumerate() {
        let escaped = part.replace('\\', "\\e").replace('-', "\\-");
        match place % 2 {
            1 => out += &format!("\\fB{escaped}\\fR"),
            _ => out += &escaped,
        }
    }
    if out.starts_with(['.', '\'']) { format!("\\&{out}") } else { out }
}
