//! [`tables`]: a row for each column and each documented key of the `Open_vSwitch` schema, with its values and its effect.
//!
//! The parser of the configuration derives its notices from the rows (`config::review`), `status` the columns that stay
//! empty, `sluice check` its suggestions, and a test docs/columns.md and the manual page sluiced.conf.db(5). The rows are
//! text, a file for some tables each, in the notation of [`notation`].

mod notation;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

/// A table of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRows {
    /// Its name.
    pub name: &'static str,
    /// Its purpose.
    pub help: &'static str,
    /// Its columns and keys in the order of their names, keys after their column.
    pub settings: Vec<Setting>,
}

/// A column, or a key of a map column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The column.
    pub column: &'static str,
    /// The key; `None` for the column itself.
    pub key: Option<&'static str>,
    /// The interface types that have this option, `tunnel` for all tunnels; empty for no restriction.
    pub types: Vec<&'static str>,
    /// Its values.
    pub values: Values,
    /// Its effect.
    pub effect: Effect,
    /// Its purpose.
    pub help: &'static str,
}

/// Valid values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// Values of the schema.
    Schema,
    /// `true` or `false`, in any case.
    Flag,
    /// A decimal number within inclusive bounds.
    Integer {
        /// Least number.
        min: Option<i64>,
        /// Greatest number.
        max: Option<i64>,
    },
    /// One of these words.
    OneOf(Vec<&'static str>),
    /// Text that only the place of its effect can check.
    Text {
        /// A valid value.
        example: &'static str,
        /// An invalid value; `None` if there is none.
        wrong: Option<&'static str>,
    },
}

/// The effect of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Carried out.
    CarriedOut {
        /// The module, as `crate::module`.
        by: &'static str,
        /// The part of it that is not supported.
        but: Option<&'static str>,
    },
    /// Not a setting: the switch writes it.
    Status {
        /// The module, as `crate::module`.
        by: &'static str,
    },
    /// A status that is always empty.
    Empty {
        /// The reason.
        because: &'static str,
    },
    /// For these other programs; the switch neither reads nor writes it.
    External(&'static str),
    /// Without effect: the feature is not supported.
    Missing {
        /// The feature.
        feature: &'static str,
        /// The consequence of its absence.
        consequence: Option<&'static str>,
        /// The value that asks for nothing; also the default of the column.
        neutral: Option<&'static str>,
    },
    /// Refused.
    Refused(&'static str),
    /// Always as if it had one value.
    Fixed {
        /// The value.
        value: &'static str,
        /// The reason.
        because: &'static str,
    },
}

const TEXTS: [&str; 5] = [
    include_str!("open_vswitch.txt"),
    include_str!("bridge.txt"),
    include_str!("port.txt"),
    include_str!("interface.txt"),
    include_str!("export.txt"),
];

/// The tables of the schema.
pub fn tables() -> &'static [TableRows] {
    static TABLES: LazyLock<Vec<TableRows>> = LazyLock::new(|| {
        let read = |text| match notation::read(text) {
            Ok(tables) => tables,
            Err(line) => unreachable!("the rows are valid, which a test checks: {line}"),
        };
        TEXTS.into_iter().flat_map(read).collect()
    });
    &TABLES
}

/// A table by name.
pub fn table(name: &str) -> Option<&'static TableRows> {
    tables().iter().find(|table| table.name == name)
}

/// The documented keys of a column.
pub fn keys(table_name: &str, column: &str) -> impl Iterator<Item = &'static str> {
    let settings = table(table_name).map_or(&[][..], |table| &table.settings);
    settings.iter().filter(move |setting| setting.column == column).filter_map(|setting| setting.key)
}

impl TableRows {
    /// The columns, without keys.
    pub fn columns(&self) -> impl Iterator<Item = &Setting> {
        self.settings.iter().filter(|setting| setting.key.is_none())
    }

    /// A column.
    pub fn column(&self, column: &str) -> Option<&Setting> {
        self.find(column, None)
    }

    /// The setting of a key.
    pub fn key(&self, column: &str, key: &str) -> Option<&Setting> {
        self.find(column, Some(key))
    }

    fn find(&self, column: &str, key: Option<&str>) -> Option<&Setting> {
        let at = self.settings.binary_search_by_key(&(column, key), |setting| (setting.column, setting.key));
        self.settings.get(at.ok()?)
    }
}

impl Setting {
    /// The column, or `column:key`.
    pub fn name(&self) -> String {
        self.key.map_or_else(|| self.column.to_string(), |key| format!("{}:{key}", self.column))
    }

    /// Whether users set it, and the switch reads it.
    pub fn is_read(&self) -> bool {
        !matches!(self.effect, Effect::Status { .. } | Effect::Empty { .. } | Effect::External(_))
    }
}

impl Values {
    /// The valid values, if this one is none of them.
    pub fn expected_instead_of(&self, text: &str) -> Option<String> {
        let is_valid = match self {
            Values::Schema | Values::Text { .. } => true,
            Values::Flag => ["true", "false"].iter().any(|word| text.eq_ignore_ascii_case(word)),
            Values::Integer { min, max } => text
                .trim()
                .parse::<i64>()
                .is_ok_and(|n| min.is_none_or(|min| n >= min) && max.is_none_or(|max| n <= max)),
            Values::OneOf(words) => words.contains(&text),
        };
        (!is_valid).then(|| self.text())
    }

    /// The valid values in words; empty for those of the schema and for text.
    pub fn text(&self) -> String {
        match self {
            Values::Schema | Values::Text { .. } => String::new(),
            Values::Flag => "true or false".into(),
            Values::Integer { min: Some(min), max: Some(max) } => format!("a number from {min} to {max}"),
            Values::Integer { min: Some(min), max: None } => format!("a number from {min} on"),
            Values::Integer { min: None, max: Some(max) } => format!("a number up to {max}"),
            Values::Integer { min: None, max: None } => "a number".into(),
            Values::OneOf(words) => match words.split_last() {
                Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
                _ => words.join(", "),
            },
        }
    }
}

impl Effect {
    /// The notice for a setting of this name and value; `None` while the value asks for nothing that is lacking.
    ///
    /// `value` is the text of the key or of the column, empty for a column of another type.
    pub fn notice(&self, setting: &str, value: &str) -> Option<String> {
        let lacking = |feature: &str, consequence: &str| {
            Some(format!(
                "{feature} ({setting}){consequence} is not supported in this version: it has no effect"
            ))
        };
        match self {
            Effect::Missing { neutral: Some(neutral), .. } if value.eq_ignore_ascii_case(neutral) => None,
            Effect::Missing { feature, consequence, .. } => {
                lacking(feature, &consequence.map(|text| format!(", {text},")).unwrap_or_default())
            }
            Effect::CarriedOut { but: Some(feature), .. } if value.eq_ignore_ascii_case("true") => {
                lacking(feature, "")
            }
            Effect::Refused(text) => Some(text.to_string()),
            Effect::Fixed { value: fixed, because } if !value.eq_ignore_ascii_case(fixed) => {
                Some(format!("{setting}={value} has no effect: {because}"))
            }
            _ => None,
        }
    }
}
