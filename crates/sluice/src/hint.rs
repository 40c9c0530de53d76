//! Hints for words that are nearly known ones.

/// Longest word that is compared: costs are quadratic.
const WORD_MAX: usize = 64;

/// The known word that differs least, if it differs little.
pub(crate) fn nearest<'n>(word: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let length = word.chars().count();
    if length > WORD_MAX {
        return None;
    }
    let most = (length / 3).max(1);
    let scored =
        known.into_iter().filter(|name| name.len() <= WORD_MAX).map(|name| (distance(word, name), name));
    scored.filter(|(cost, _)| (1..=most).contains(cost)).min_by_key(|(cost, _)| *cost).map(|(_, name)| name)
}

/// ` (did you mean 'NAME'?)`, or nothing.
pub(crate) fn hint<'n>(word: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    nearest(word, known).map(|name| format!(" (did you mean '{name}'?)")).unwrap_or_default()
}

/// Letters to insert, remove, replace, or swap with the next one, without regard to case.
fn distance(a: &str, b: &str) -> usize {
    let fold = |text: &str| text.chars().map(|c| c.to_ascii_lowercase()).collect::<Vec<_>>();
    let (a, b) = (fold(a), fold(b));
    // Rows of the table: before the last, the last, this one.
    let (mut older, mut last) = (Vec::new(), (0..=b.len()).collect::<Vec<_>>());
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(x != y);
            let mut cost = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                let before: &Vec<usize> = &older;
                cost = cost.min(before[j - 1] + 1);
            }
            row.push(cost);
        }
        older = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_differ_little_are_hinted_at() {
        let known = ["add-port", "del-port", "list-ports", "show", "dump-flows"];
        for (word, expected) in [
            ("add-prot", Some("add-port")),
            ("dumpflows", Some("dump-flows")),
            ("dump-flow", Some("dump-flows")),
            ("SHW", Some("show")),
            ("xyz", None),
            ("show", None),
            ("", None),
            (&"a".repeat(1000), None),
        ] {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
        assert_eq!(hint("sohw", known), " (did you mean 'show'?)");
        assert_eq!(hint("zzzzzz", known), "");
    }

    #[test]
    fn distances_count_single_changes() {
        for (a, b, cost) in
            [("", "", 0), ("", "ab", 2), ("ab", "ba", 1), ("abc", "adc", 1), ("abcd", "bd", 2)]
        {
            assert_eq!((distance(a, b), distance(b, a)), (cost, cost), "{a} {b}");
        }
    }
}
