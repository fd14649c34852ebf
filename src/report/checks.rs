//! A verdict's checks for people: sizes that were checked in the same way stand together.

/// The lines of a list of checks. Those of outputs, which a verifier tells size by size, are gathered: first
/// what was checked and at how many sizes, then, indented, the sizes of each purpose on a line.
pub fn by_size(checks: &[String]) -> Vec<String> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for check in checks {
        match at_size(check) {
            None => groups.push(Group::Other(check)),
            Some(AtSize { purpose, size, how }) => {
                let known = groups.iter_mut().find_map(|group| match group {
                    Group::Outputs { how: same, sizes } if *same == how => Some(sizes),
                    Group::Outputs { .. } | Group::Other(_) => None,
                });
                match known {
                    Some(sizes) => sizes.push((purpose, size)),
                    None => groups.push(Group::Outputs {
                        how,
                        sizes: vec![(purpose, size)],
                    }),
                }
            }
        }
    }
    groups.iter().flat_map(Group::lines).collect()
}

enum Group<'a> {
    Other(&'a str),
    Outputs {
        how: &'a str,
        /// Purpose and numbers, in the order told.
        sizes: Vec<(&'a str, &'a str)>,
    },
}

impl Group<'_> {
    fn lines(&self) -> Vec<String> {
        match self {
            Self::Other(check) => vec![(*check).to_owned()],
            Self::Outputs { how, sizes } => match sizes.as_slice() {
                [(purpose, size)] => vec![format!("outputs at {purpose} {size}: {how}")],
                many => {
                    let mut lines = vec![format!("outputs at {} sizes: {how}", many.len())];
                    lines.extend(many.chunk_by(|(a, _), (b, _)| a == b).map(|same| {
                        let sizes: Vec<&str> = same.iter().map(|(_, size)| *size).collect();
                        format!("  {:<5} {}", same[0].0, sizes.join(" · "))
                    }));
                    lines
                }
            },
        }
    }
}

struct AtSize<'a> {
    purpose: &'a str,
    size: &'a str,
    how: &'a str,
}

/// `outputs at smoke n=4096: inputs normal, special; …`
fn at_size(check: &str) -> Option<AtSize<'_>> {
    let (label, how) = check.strip_prefix("outputs at ")?.split_once(": ")?;
    let (purpose, size) = label.split_once(' ')?;
    Some(AtSize { purpose, size, how })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_checked_alike_stand_together_in_the_order_told() {
        let checks = [
            "limits of the H200",
            "outputs at smoke m=1, n=2: inputs normal; bit for bit",
            "outputs at smoke m=3, n=4: inputs normal; bit for bit",
            "outputs at edge m=5, n=6: inputs normal; bit for bit",
            "outputs at edge m=7, n=8: inputs special",
            "inputs unchanged",
        ]
        .map(str::to_owned);
        assert_eq!(
            by_size(&checks),
            [
                "limits of the H200",
                "outputs at 3 sizes: inputs normal; bit for bit",
                "  smoke m=1, n=2 · m=3, n=4",
                "  edge  m=5, n=6",
                "outputs at edge m=7, n=8: inputs special",
                "inputs unchanged",
            ]
        );
    }
}
