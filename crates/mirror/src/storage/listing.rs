//! Reads the list of objects that an S3-compatible service returns: as much XML as there is in it.

use super::ListedFile;

/// One page of a list.
#[derive(Debug, PartialEq, Eq)]
pub struct ListPage {
    /// The objects, with their whole keys.
    pub files: Vec<ListedFile>,
    /// The token of the next page; `None` at the end.
    pub next: Option<String>,
}

/// The text between the first `<tag>` and its end, unescaped.
pub fn text_of(xml: &str, tag: &str) -> Option<String> {
    let (_, rest) = xml.split_once(&format!("<{tag}>"))?;
    let (text, _) = rest.split_once(&format!("</{tag}>"))?;
    Some(unescape(text))
}

fn unescape(text: &str) -> String {
    if !text.contains('&') {
        return text.to_owned();
    }
    let named =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#34;", "\""), ("&apos;", "'"), ("&#39;", "'")];
    let text = named.iter().fold(text.to_owned(), |text, (name, letter)| text.replace(name, letter));
    text.replace("&amp;", "&")
}

/// Reads a page.
pub fn parse(xml: &str) -> Result<ListPage, String> {
    if !xml.contains("<ListBucketResult") {
        return Err("the service did not answer with a list of objects".into());
    }
    let mut files = Vec::new();
    for object in xml.split("<Contents>").skip(1) {
        let object = object.split_once("</Contents>").map_or(object, |(object, _)| object);
        let name = text_of(object, "Key").ok_or("an object has no key")?;
        let bytes = text_of(object, "Size").and_then(|size| size.trim().parse().ok());
        files.push(ListedFile { name, bytes: bytes.ok_or("an object has no size")? });
    }
    let is_truncated = text_of(xml, "IsTruncated").is_some_and(|text| text.trim() == "true");
    let next = text_of(xml, "NextContinuationToken").filter(|_| is_truncated);
    match (is_truncated, &next) {
        (true, None) => Err("the list is not complete, and has no continuation".into()),
        _ => Ok(ListPage { files, next }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        let xml = "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\"><Name>b</Name><KeyCount>2</KeyCount>\
            <IsTruncated>true</IsTruncated><NextContinuationToken>a&amp;b=</NextContinuationToken>\
            <Contents><Key>p/one</Key><Size>12</Size><ETag>&quot;x&quot;</ETag></Contents>\
            <Contents><Key>p/t&lt;wo</Key><Size>0</Size></Contents></ListBucketResult>";
        let page = parse(xml).unwrap();
        let names: Vec<(&str, u64)> =
            page.files.iter().map(|file| (file.name.as_str(), file.bytes)).collect();
        assert_eq!(names, [("p/one", 12), ("p/t<wo", 0)]);
        assert_eq!(page.next.as_deref(), Some("a&b="));
        let empty = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
        assert_eq!(parse(empty).unwrap(), ListPage { files: Vec::new(), next: None });
        for wrong in ["", "<html></html>", "<ListBucketResult><Contents></Contents></ListBucketResult>"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse("<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>").is_err());
    }
}
