//! The notation of the rows.
//!
//! ```text
//! [TABLE] HELP
//! COLUMN[:KEY][@TYPE,…] | VALUES | EFFECT | HELP
//! ```
//! `TYPE` restricts an option to interface types. `VALUES` is empty (those of the
//! schema), `bool`, `int [MIN..][MAX]`, `one of WORD…` or `text EXAMPLE[ ! WRONG]`. `EFFECT` is one of
//!
//! - `by MODULE[ but FEATURE]`: carried out, except for a feature;
//! - `status MODULE`: written by the switch, `empty REASON`: a status that is always empty;
//! - `external PROGRAMS`: for other programs;
//! - `missing FEATURE[; CONSEQUENCE][ unless VALUE]`: without effect;
//! - `refused TEXT`: refused with this text;
//! - `fixed VALUE REASON`: always as with this value;
//! - `within TABLE.COLUMN`: part of a row to which that setting refers.

use super::{Effect, Setting, TableRows, Values};

/// Reads rows.
///
/// # Errors
/// The first faulty line.
pub(super) fn read(text: &'static str) -> Result<Vec<TableRows>, &'static str> {
    let mut tables: Vec<TableRows> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(rest) = line.strip_prefix('[') {
            let (name, help) = rest.split_once("] ").ok_or(line)?;
            tables.push(TableRows { name, help, settings: Vec::new() });
        } else {
            let table = tables.last_mut().ok_or(line)?;
            table.settings.push(setting(line).ok_or(line)?);
        }
    }
    for table in &mut tables {
        table.settings.sort_by_key(|setting| (setting.column, setting.key));
    }
    Ok(tables)
}

fn setting(line: &'static str) -> Option<Setting> {
    let mut fields = line.split('|').map(str::trim);
    let (name, values, effect, help) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let (name, types) = name.split_once('@').unwrap_or((name, ""));
    let (column, key) = name.split_once(':').map_or((name, None), |(column, key)| (column, Some(key)));
    let is_whole = fields.next().is_none() && !column.is_empty() && !help.is_empty();
    is_whole.then_some(Setting {
        column,
        key,
        types: types.split(',').filter(|name| !name.is_empty()).collect(),
        values: self::values(values)?,
        effect: self::effect(effect)?,
        help,
    })
}

fn values(text: &'static str) -> Option<Values> {
    let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
    Some(match kind {
        "" => Values::Schema,
        "bool" => Values::Flag,
        "int" => {
            let (min, max) = rest.split_once("..").unwrap_or(("", ""));
            let bound = |text: &str| match text {
                "" => Some(None),
                text => text.parse().ok().map(Some),
            };
            Values::Integer { min: bound(min)?, max: bound(max)? }
        }
        "one" => Values::OneOf(rest.strip_prefix("of ")?.split(' ').collect()),
        "text" => {
            let (example, wrong) =
                rest.split_once(" ! ").map_or((rest, None), |(example, wrong)| (example, Some(wrong)));
            Values::Text { example, wrong }
        }
        _ => return None,
    })
}

fn effect(text: &'static str) -> Option<Effect> {
    let (kind, rest) = text.split_once(' ')?;
    let optional = |separator: &str| match rest.split_once(separator) {
        Some((first, second)) => (first, Some(second)),
        None => (rest, None),
    };
    Some(match kind {
        "by" => {
            let (by, but) = optional(" but ");
            Effect::CarriedOut { by, but }
        }
        "status" => Effect::Status { by: rest },
        "empty" => Effect::Empty { because: rest },
        "external" => Effect::External(rest),
        "missing" => {
            let (rest, neutral) = optional(" unless ");
            let (feature, consequence) =
                rest.split_once("; ").map_or((rest, None), |(feature, text)| (feature, Some(text)));
            Effect::Missing { feature, consequence, neutral }
        }
        "refused" => Effect::Refused(rest),
        "fixed" => {
            let (value, because) = rest.split_once(' ')?;
            Effect::Fixed { value, because }
        }
        _ => return None,
    })
}
