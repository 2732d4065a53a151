//! Hides what differs from run to run.

/// The text with masks, every line ended.
pub fn mask(text: &str) -> String {
    text.lines().map(|line| mask_line(line) + "\n").collect()
}

fn mask_line(line: &str) -> String {
    // Of a diff's two files only the names are the same every time.
    if let Some(start) = ["--- ", "+++ ", "diff "].into_iter().find(|start| line.starts_with(start)) {
        let files: Vec<String> =
            line.split([' ', '\t']).filter(|word| word.contains('/')).map(file_of_diff).collect();
        if !files.is_empty() {
            return format!("{start}{}", files.join(" "));
        }
    }
    let mut masked = String::new();
    let mut before = "";
    for part in line.split_inclusive(' ') {
        let word = part.trim_end();
        match mask_word(word, before) {
            Some(mask) => masked.extend([mask.as_str(), &part[word.len()..]]),
            None => masked.push_str(part),
        }
        if !word.is_empty() {
            before = word;
        }
    }
    masked.trim_end().to_owned()
}

/// `/tmp/LIVE-123/v1.ConfigMap.default.pond` without the middle.
fn file_of_diff(path: &str) -> String {
    let mut parts = path.rsplit('/');
    let name = parts.next().unwrap_or_default();
    let folder = parts.next().unwrap_or_default().split('-').next().unwrap_or_default();
    format!("{folder}/{name}")
}

fn mask_word(word: &str, before: &str) -> Option<String> {
    let bare = word.trim_matches(['"', '\'', ',', '(', ')', '.']);
    if let Some((start, _)) = word.split_once("X509SHA256=") {
        return Some(format!("{start}X509SHA256=<hash>]"));
    }
    let mask = if before == "resourceVersion:" {
        "<version>"
    } else if is_age(bare) {
        "<age>"
    } else if is_uid(bare) {
        "<uid>"
    } else if is_time(bare) {
        "<time>"
    } else if bare.starts_with("eyJ") && bare.split('.').count() == 3 {
        "<token>"
    } else {
        return None;
    };
    Some(word.replace(bare, mask))
}

fn is_age(word: &str) -> bool {
    let digits = word.trim_end_matches(['s', 'm', 'h', 'd']);
    !digits.is_empty() && digits.len() < word.len() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_uid(word: &str) -> bool {
    let lengths: Vec<usize> = word.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && word.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

fn is_time(word: &str) -> bool {
    word.len() >= 20 && word.ends_with('Z') && word.as_bytes()[10] == b'T' && word.starts_with("20")
}

#[cfg(test)]
mod tests {
    use super::mask;

    #[test]
    fn what_differs_from_run_to_run_is_hidden() {
        let check = |line: &str, masked: &str| assert_eq!(mask(line), format!("{masked}\n"), "{line}");
        check("pond   2      0s", "pond   2      <age>");
        check("web    Deployment/web   12m ago", "web    Deployment/web   <age> ago");
        check("  creationTimestamp: \"2026-11-15T10:00:00Z\"", "  creationTimestamp: \"<time>\"");
        check("  resourceVersion: \"123\"", "  resourceVersion: \"<version>\"");
        check("  uid: 0b8cbd1d-6a2f-4a59-8d56-4a9d0c6b2a55", "  uid: <uid>");
        check("eyJhbGciOiJF.eyJhdWQiOl.c2lnbmF0dXJl", "<token>");
        check(
            "--- /tmp/LIVE-123/v1.ConfigMap.default.pond\t2026-11-15 10:00:00.1 +0000",
            "--- LIVE/v1.ConfigMap.default.pond",
        );
        check(
            "diff -u -N /tmp/LIVE-1/v1.ConfigMap.default.pond /tmp/MERGED-2/v1.ConfigMap.default.pond",
            "diff LIVE/v1.ConfigMap.default.pond MERGED/v1.ConfigMap.default.pond",
        );
    }

    #[test]
    fn what_does_not_is_shown() {
        for line in
            ["configmap/pond created", "MINPODS   MAXPODS", "harbour   Active", "  depth: \"3\"", "ms", ""]
        {
            assert_eq!(mask(line).trim_end(), line);
        }
    }
}
