//! Unique names: of namespaces and folders (`sl-<pid>-<n>-<tag>`), and of interfaces, with at most 15
//! characters.

use std::sync::atomic::{AtomicU32, Ordering};

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// Prefix of all our namespaces and folders.
const PREFIX: &str = "sl-";

/// The next number of this process.
fn next() -> u32 {
    COUNTER.fetch_add(1, Ordering::Relaxed)
}

/// A name unique among our namespaces and folders. Keeps letters and digits of `tag`, at most 20.
pub(crate) fn unique(tag: &str) -> String {
    let tag: String = tag.chars().filter(char::is_ascii_alphanumeric).take(20).collect();
    format!("{PREFIX}{}-{}-{tag}", std::process::id(), next())
}

/// The process id in a name from [`unique`]; `None` for any other name.
pub(crate) fn owner(name: &str) -> Option<u32> {
    let mut parts = name.strip_prefix(PREFIX)?.splitn(3, '-');
    let pid = parts.next()?.parse().ok()?;
    let _number: u32 = parts.next()?.parse().ok()?;
    parts.next().map(|_tag| pid)
}

/// Environment variable of test processes in a separate PID namespace: they see no process outside and
/// consider no name stale.
pub const FOREIGN_PIDS: &str = "SLUICE_FOREIGN_PIDS";

/// Whether a name is ours and its process is gone.
pub(crate) fn is_stale(name: &str) -> bool {
    std::env::var_os(FOREIGN_PIDS).is_none() && has_no_owner(name)
}

fn has_no_owner(name: &str) -> bool {
    owner(name).is_some_and(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists())
}

/// An interface name that is unique on the machine, at most 15 characters: `tag` (letters and digits, the
/// first 3), the process id in base 36 and a decimal number of at least four digits. Names of one tag sort in order
/// of creation, also if digits compare as numbers: a switch numbers ports by name. A namespace is torn down some time after its deletion, so
/// a reused name could still be taken.
pub fn if_name(tag: &str) -> String {
    numbered(tag, next())
}

fn numbered(tag: &str, number: u32) -> String {
    let tag: String = tag.chars().filter(char::is_ascii_alphanumeric).take(3).collect();
    format!("{tag}{}_{number:0>4}", base36(std::process::id()))
}

fn base36(mut number: u32) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit(number % 36, 36).unwrap_or('0'));
        number /= 36;
        if number == 0 {
            return digits.iter().rev().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_fit() {
        assert_ne!(unique("a"), unique("a"));
        assert_ne!(if_name("a"), if_name("a"));
        assert!(if_name("a-very-long-tag").len() <= 15);
        let names: Vec<String> = (0..2000).map(|number| numbered("v", number)).collect();
        assert!(names.is_sorted());
        assert_eq!(numbered("v", 35), format!("v{}_0035", base36(std::process::id())));
        assert_eq!(
            (base36(0), base36(35), base36(36), base36(4_194_304)),
            ("0".into(), "z".into(), "10".into(), "2hwcg".into())
        );
    }

    #[test]
    fn only_our_own_names_have_an_owner() {
        assert_eq!(owner(&unique("a/b c")), Some(std::process::id()));
        assert_eq!(owner("sl-12-3-"), Some(12));
        for other in ["h1", "sl-", "sl-12", "sl-12-3", "sl-x-3-a", "sl-12-x-a", "xsl-12-3-a", "sl--1-3-a"] {
            assert_eq!(owner(other), None, "{other}");
        }
    }

    #[test]
    fn stale_is_what_no_living_process_owns() {
        assert!(!has_no_owner(&unique("a")));
        // Above Linux's maximum process id (4194304).
        assert!(has_no_owner("sl-4194305-0-a"));
        assert!(!has_no_owner("web"));
    }
}
