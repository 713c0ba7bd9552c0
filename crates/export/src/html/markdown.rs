//! Markdown as HTML: only elements of this list, never HTML of the text itself, no images, and links only to the web and to mail.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::escape::{push_attribute, push_text};

/// Adds a text in Markdown.
pub fn push_markdown(out: &mut String, text: &str) {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut writer = MarkdownWriter { out, links: Vec::new(), is_in_head: false };
    for event in Parser::new_ext(text, options) {
        writer.push_event(event);
    }
}

struct MarkdownWriter<'a> {
    out: &'a mut String,
    /// For each open link, whether it was written as one.
    links: Vec<bool>,
    is_in_head: bool,
}

impl MarkdownWriter<'_> {
    fn push_event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Code(text) => {
                self.out.push_str("<code>");
                push_text(self.out, &text);
                self.out.push_str("</code>");
            }
            // HTML in the text is text.
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => push_text(self.out, &text),
            Event::InlineMath(text) | Event::DisplayMath(text) => push_text(self.out, &text),
            Event::FootnoteReference(name) => push_text(self.out, &format!("[{name}]")),
            Event::SoftBreak => self.out.push('\n'),
            Event::HardBreak => self.out.push_str("<br>\n"),
            Event::Rule => self.out.push_str("<hr>\n"),
            Event::TaskListMarker(is_done) => self.out.push_str(if is_done { "☑ " } else { "☐ " }),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => self.out.push_str("<p dir=\"auto\">"),
            Tag::Heading { level, .. } => self.out.push_str(&format!("<{} dir=\"auto\">", heading(level))),
            Tag::BlockQuote(_) => self.out.push_str("<blockquote>\n"),
            Tag::CodeBlock(kind) => {
                self.out.push_str("<pre class=\"code\"");
                if let CodeBlockKind::Fenced(language) = kind
                    && let Some(language) = language.split_whitespace().next()
                {
                    self.out.push_str(" data-language=\"");
                    push_attribute(self.out, language);
                    self.out.push('"');
                }
                self.out.push_str("><code>");
            }
            Tag::List(Some(first)) if first != 1 => self.out.push_str(&format!("<ol start=\"{first}\">\n")),
            Tag::List(Some(_)) => self.out.push_str("<ol>\n"),
            Tag::List(None) => self.out.push_str("<ul>\n"),
            Tag::Item => self.out.push_str("<li dir=\"auto\">"),
            Tag::Table(_) => self.out.push_str("<div class=\"wide\"><table>\n"),
            Tag::TableHead => {
                self.is_in_head = true;
                self.out.push_str("<thead><tr>");
            }
            Tag::TableRow => self.out.push_str("<tr>"),
            Tag::TableCell => self.out.push_str(if self.is_in_head { "<th>" } else { "<td>" }),
            Tag::Emphasis => self.out.push_str("<em>"),
            Tag::Strong => self.out.push_str("<strong>"),
            Tag::Strikethrough => self.out.push_str("<del>"),
            Tag::Link { dest_url, .. } => self.start_link(&dest_url),
            Tag::Image { dest_url, .. } => {
                self.out.push_str("<span class=\"image\" title=\"");
                push_attribute(self.out, &dest_url.chars().take(200).collect::<String>());
                self.out.push_str("\">[image: ");
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph => self.out.push_str("</p>\n"),
            TagEnd::Heading(level) => self.out.push_str(&format!("</{}>\n", heading(level))),
            TagEnd::BlockQuote(_) => self.out.push_str("</blockquote>\n"),
            TagEnd::CodeBlock => self.out.push_str("</code></pre>\n"),
            TagEnd::List(true) => self.out.push_str("</ol>\n"),
            TagEnd::List(false) => self.out.push_str("</ul>\n"),
            TagEnd::Item => self.out.push_str("</li>\n"),
            TagEnd::Table => self.out.push_str("</tbody></table></div>\n"),
            TagEnd::TableHead => {
                self.is_in_head = false;
                self.out.push_str("</tr></thead><tbody>\n");
            }
            TagEnd::TableRow => self.out.push_str("</tr>\n"),
            TagEnd::TableCell => self.out.push_str(if self.is_in_head { "</th>" } else { "</td>" }),
            TagEnd::Emphasis => self.out.push_str("</em>"),
            TagEnd::Strong => self.out.push_str("</strong>"),
            TagEnd::Strikethrough => self.out.push_str("</del>"),
            TagEnd::Link => {
                let end = if self.links.pop() == Some(true) { "</a>" } else { "" };
                self.out.push_str(end);
            }
            TagEnd::Image => self.out.push_str("]</span>"),
            _ => {}
        }
    }

    /// A link that a reader can follow. Its address is shown on hovering, since its text could name another one.
    fn start_link(&mut self, address: &str) {
        let lower = address.trim().to_ascii_lowercase();
        let is_safe = ["https://", "http://", "mailto:"].iter().any(|scheme| lower.starts_with(scheme));
        if is_safe {
            self.out.push_str("<a target=\"_blank\" rel=\"noopener noreferrer nofollow\" href=\"");
            push_attribute(self.out, address.trim());
            self.out.push_str("\" title=\"");
            push_attribute(self.out, address.trim());
            self.out.push_str("\">");
        }
        self.links.push(is_safe);
    }
}

/// Headings of a text are below those of the page.
fn heading(level: HeadingLevel) -> &'static str {
    match level {
        HeadingLevel::H1 => "h3",
        HeadingLevel::H2 => "h4",
        HeadingLevel::H3 => "h5",
        _ => "h6",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html(text: &str) -> String {
        let mut out = String::new();
        push_markdown(&mut out, text);
        out
    }

    #[test]
    fn what_models_write_is_formatted() {
        let text = "# Title\n\nSome *text* with `code`.\n\n- one\n- two\n\n```rust\nfn main() {}\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n";
        let html = html(text);
        for part in [
            "<h3 dir=\"auto\">Title</h3>",
            "<em>text</em>",
            "<code>code</code>",
            "<li dir=\"auto\">one</li>",
            "<pre class=\"code\" data-language=\"rust\"><code>fn main() {}\n</code></pre>",
            "<thead><tr><th>a</th><th>b</th></tr></thead><tbody>",
            "<tr><td>1</td><td>2</td></tr>",
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
    }

    #[test]
    fn nothing_in_a_text_becomes_active() {
        for text in [
            "<script>alert(1)</script>",
            "a <img src=x onerror=alert(1)> b",
            "<svg onload=alert(1)>",
            "[click](javascript:alert(1))",
            "[click](JaVaScRiPt:alert(1))",
            "[click](data:text/html,<script>alert(1)</script>)",
            "![pixel](https://evil.example/pixel.png)",
            "![x](\"onerror=\"alert(1))",
            "[a](https://x.example/\"onmouseover=\"alert(1))",
            "<https://x.example/\"><script>alert(1)</script>>",
            "```\"><script>alert(1)</script>\nx\n```",
            "<!-- --><iframe src=https://evil.example></iframe>",
        ] {
            let html = html(text);
            let lower = html.to_ascii_lowercase();
            for bad in ["<script", "<img", "<svg", "<iframe", "href=\"javascript", "href=\"data", "src="] {
                let is_tag = bad != "src=" || lower.contains("<img") || lower.contains("<iframe");
                assert!(!(lower.contains(bad) && is_tag), "{bad} in {html}");
            }
            // A quote never ends an attribute.
            assert!(!lower.contains("\"onmouseover"), "{html}");
        }
        assert!(html("[docs](https://a.example/x)").contains("href=\"https://a.example/x\""));
    }
}
