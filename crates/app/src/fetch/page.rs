//! Searches a page for links, title and what it loads, while it arrives.
//!
//! `lol_html` finds the tags as browsers do: what stands in scripts, comments or text is none. The
//! page is never held whole; what is taken from it is bounded in number and in bytes. A page that
//! cannot be parsed to its end has the links that were found before.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use encoding_rs::Encoding;
use lol_html::html_content::{Element, EndTag, TextChunk};
use lol_html::{
    AsciiCompatibleEncoding, ElementContentHandlers, HtmlRewriter, MemorySettings, Selector,
    Settings,
};
use url::Url;

use super::trackers::ResourceKind;

mod charset;
mod entities;
mod found;

use charset::{charset_parameter, guess, xml_encoding};
use found::{Found, TitleState};

/// What was found on a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    /// The first title, on one line, at most [`MAX_TITLE`] characters.
    pub(crate) title: Option<String>,
    /// Links that may be followed, in normal form, each once, in the order of the page.
    pub(crate) links: Vec<Url>,
    /// What the page loads, each once.
    pub(crate) resources: Vec<Resource>,
    /// Whether there is more than was read or stored.
    pub(crate) is_truncated: bool,
}

/// Something that a page loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) url: Url,
    pub(crate) kind: ResourceKind,
}

/// The most links of one page.
pub(crate) const MAX_LINKS: usize = 10_000;

/// The most resources of one page.
pub(crate) const MAX_RESOURCES: usize = 1_000;

/// The longest title, in characters.
pub(crate) const MAX_TITLE: usize = 300;

/// Reads a page piece by piece.
pub(crate) struct PageReader {
    found: Rc<RefCell<Found>>,
    /// What the response said.
    charset: Option<&'static Encoding>,
    input: Input,
}

/// How far the page is understood.
enum Input {
    /// The first bytes, from which the encoding is seen.
    Head(Vec<u8>),
    /// The rest.
    Body(Box<Body>),
}

type Parser = HtmlRewriter<'static, fn(&[u8])>;

impl PageReader {
    /// A reader for the page at this URL, which is the one after redirects; `None` if the response is
    /// no HTML.
    pub(crate) fn new(url: &Url, content_type: Option<&str>) -> Option<Self> {
        let content_type = content_type?;
        let mut parts = content_type.split(';');
        let essence = parts.next().unwrap_or_default().trim();
        let is_html = ["text/html", "application/xhtml+xml"];
        if !is_html
            .iter()
            .any(|html| essence.eq_ignore_ascii_case(html))
        {
            return None;
        }
        Some(Self {
            found: Rc::new(RefCell::new(Found::new(url))),
            charset: parts.find_map(charset_parameter),
            input: Input::Head(Vec::new()),
        })
    }

    /// Reads the title only, for a page whose links are not needed. Most of the time that a small page
    /// takes is to make its parser, and one that looks for less is made sooner.
    pub(crate) fn title_only(self) -> Self {
        self.found.borrow_mut().is_title_only = true;
        self
    }

    /// Reads on.
    pub(crate) fn write(&mut self, piece: &[u8]) {
        match &mut self.input {
            Input::Head(head) => {
                head.extend_from_slice(piece);
                if head.len() >= HEAD_LEN {
                    self.begin();
                }
            }
            Input::Body(_) => self.parse(piece),
        }
    }

    /// Ends the page.
    pub(crate) fn finish(mut self) -> Page {
        if let Input::Head(_) = self.input {
            self.begin();
        }
        if let Input::Body(body) = self.input
            && body.parser.end().is_err()
        {
            self.found.borrow_mut().page.is_truncated = true;
        }
        let mut found = self.found.borrow_mut();
        found.finish_title();
        if found.is_nofollow {
            found.page.links.clear();
        }
        std::mem::take(&mut found.page)
    }

    /// Chooses the encoding by the first bytes and parses them.
    fn begin(&mut self) {
        let Input::Head(head) = &mut self.input else {
            return;
        };
        let head = std::mem::take(head);
        let declared = Encoding::for_bom(&head)
            .map(|(encoding, _)| encoding)
            .or(self.charset)
            .or_else(|| xml_encoding(&head));
        let encoding = declared.unwrap_or_else(|| guess(&head));
        let (ascii, decoder) = match AsciiCompatibleEncoding::new(encoding) {
            Some(ascii) => (ascii, None),
            None => (
                AsciiCompatibleEncoding::utf_8(),
                Some(encoding.new_decoder()),
            ),
        };
        {
            let mut found = self.found.borrow_mut();
            found.encoding = encoding;
            found.may_declare = declared.is_none();
        }
        self.input = Input::Body(Box::new(Body {
            parser: parser(&self.found, ascii, declared.is_none()),
            encoding: ascii,
            decoder,
        }));
        self.parse(&head);
    }

    fn parse(&mut self, piece: &[u8]) {
        let Input::Body(body) = &mut self.input else {
            return;
        };
        match &mut body.decoder {
            None => body.parse(piece, &self.found),
            Some(decoder) => {
                let len = decoder.max_utf8_buffer_length(piece.len());
                let mut text = String::with_capacity(len.unwrap_or(0));
                // There is room for all of it.
                let _ = decoder.decode_to_string(piece, &mut text, false);
                body.parse(text.as_bytes(), &self.found);
            }
        }
    }
}

/// A page that is being parsed.
struct Body {
    parser: Parser,
    encoding: AsciiCompatibleEncoding,
    /// For an encoding that is no superset of ASCII, which the parser does not take.
    decoder: Option<encoding_rs::Decoder>,
}

impl Body {
    /// Parses on. A parser that is out of memory, by a tag of a megabyte or by thousands of elements
    /// inside each other, is replaced by another, which knows of no open element.
    fn parse(&mut self, text: &[u8], found: &Rc<RefCell<Found>>) {
        for part in text.chunks(MAX_PART) {
            if self.parser.write(part).is_err() {
                found.borrow_mut().restart();
                self.parser = parser(found, self.encoding, false);
                if self.parser.write(part).is_err() {
                    self.parser = parser(found, self.encoding, false);
                }
            }
        }
    }
}

/// What is parsed at once: so little that a new parser has the memory for it.
const MAX_PART: usize = 4 * 1024;

impl fmt::Debug for PageReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageReader").finish_non_exhaustive()
    }
}

/// How many bytes are looked at for the encoding, as browsers do.
const HEAD_LEN: usize = 1024;

thread_local! {
    static SELECTORS: Selectors = Selectors::new();
}

/// Parsed once: that takes as long as parsing a small page.
struct Selectors {
    elements: Selector,
    /// Those of `elements` without which the title is not found.
    title_elements: Selector,
    picture_title: Selector,
    title: Selector,
    noscript: Selector,
}

impl Selectors {
    fn new() -> Self {
        let parse = |selector: &str| selector.parse().expect("it is a selector");
        Self {
            elements: parse(
                "a[href], area[href], base[href], link[href], meta, template, title, \
                 iframe[src], frame[src], script[src], img[src], input[src], \
                 video[src], audio[src], source[src], track[src], embed[src], object[data]",
            ),
            title_elements: parse("meta, template, title"),
            picture_title: parse("svg title"),
            title: parse("title"),
            noscript: parse("noscript"),
        }
    }
}

/// Creates a parser that adds to what was found.
fn parser(
    found: &Rc<RefCell<Found>>,
    encoding: AsciiCompatibleEncoding,
    may_declare: bool,
) -> Parser {
    let is_title_only = found.borrow().is_title_only;
    let [element, picture_title, title, noscript] = [(); 4].map(|()| Rc::clone(found));
    let memory = MemorySettings::new()
        .with_preallocated_parsing_buffer_size(0)
        .with_max_allowed_memory_usage(MAX_PARSER_MEMORY);
    SELECTORS.with(|selectors| {
        let elements = match is_title_only {
            true => &selectors.title_elements,
            false => &selectors.elements,
        };
        let settings = Settings::new()
            .with_encoding(encoding)
            .with_strict(false)
            .with_adjust_charset_on_meta_tag(may_declare)
            .with_memory_settings(memory)
            .append_element_content_handler((
                Cow::Borrowed(&selectors.picture_title),
                ElementContentHandlers::default().element(move |_: &mut Element<'_, '_>| {
                    picture_title.borrow_mut().is_picture_title = true;
                    Ok(())
                }),
            ))
            .append_element_content_handler((
                Cow::Borrowed(elements),
                ElementContentHandlers::default().element(move |tag: &mut Element<'_, '_>| {
                    see_element(&element, tag);
                    Ok(())
                }),
            ))
            .append_element_content_handler((
                Cow::Borrowed(&selectors.title),
                ElementContentHandlers::default().text(move |text: &mut TextChunk<'_>| {
                    title.borrow_mut().see_title(text);
                    Ok(())
                }),
            ))
            .append_element_content_handler((
                Cow::Borrowed(&selectors.noscript),
                ElementContentHandlers::default().text(move |text: &mut TextChunk<'_>| {
                    see_noscript(&noscript, text);
                    Ok(())
                }),
            ));
        HtmlRewriter::new(settings, (|_| ()) as fn(&[u8]))
    })
}

/// What a parser may need for a tag that has not ended, and for the tags that are open. Pages with
/// images inside of attributes have tags of some hundred kilobytes.
const MAX_PARSER_MEMORY: usize = 1 << 20;

/// Looks at a start tag.
fn see_element(found: &Rc<RefCell<Found>>, tag: &mut Element<'_, '_>) {
    let name = tag.tag_name();
    if name == "template" {
        if tag.namespace_uri() == HTML && !tag.has_attribute("shadowrootmode") {
            enter_template(found, tag);
        }
        return;
    }
    let mut found = found.borrow_mut();
    if found.templates > 0 {
        return;
    }
    let attribute = |name: &str| tag.get_attribute(name);
    let source = attribute(if name == "object" { "data" } else { "src" });
    let source = source.as_deref();
    match name.as_str() {
        "a" | "area" => found.add_anchor(attribute("href").as_deref(), attribute("rel").as_deref()),
        "link" => found.add_head_link(
            attribute("href").as_deref(),
            attribute("rel").as_deref(),
            attribute("as").as_deref(),
        ),
        "base" => found.set_base(attribute("href").as_deref()),
        "meta" => found.see_meta(attribute),
        "title" => {
            let is_in_picture = std::mem::take(&mut found.is_picture_title);
            if found.title_state == TitleState::Awaited && !is_in_picture {
                found.title_state = TitleState::Open;
            }
        }
        "iframe" | "frame" => {
            found.add_link(source);
            found.add_resource(source, ResourceKind::Frame);
        }
        "script" => found.add_resource(source, ResourceKind::Script),
        "img" => found.add_resource(source, ResourceKind::Image),
        "input" if attribute("type").is_some_and(|kind| kind.eq_ignore_ascii_case("image")) => {
            found.add_resource(source, ResourceKind::Image);
        }
        "source" | "video" | "audio" | "track" => found.add_resource(source, ResourceKind::Media),
        "embed" | "object" => found.add_resource(source, ResourceKind::Object),
        _ => {}
    }
}

const HTML: &str = "http://www.w3.org/1999/xhtml";

/// What is in a template is not part of the page.
fn enter_template(found: &Rc<RefCell<Found>>, tag: &mut Element<'_, '_>) {
    found.borrow_mut().templates += 1;
    let at_end = Rc::clone(found);
    let leave = move |_: &mut EndTag<'_>| {
        at_end.borrow_mut().templates -= 1;
        Ok(())
    };
    if tag.on_end_tag(Box::new(leave)).is_err() {
        found.borrow_mut().templates -= 1;
    }
}

/// Reads what a page has for programs that run no scripts, as this one. The parser takes it for text.
fn see_noscript(found: &Rc<RefCell<Found>>, text: &TextChunk<'_>) {
    let inner = {
        let mut state = found.borrow_mut();
        let room = MAX_NOSCRIPT.saturating_sub(state.noscript.len());
        let part = text.as_str();
        let part = &part[..part.floor_char_boundary(room)];
        state.noscript.push_str(part);
        if !text.last_in_text_node() {
            return;
        }
        std::mem::take(&mut state.noscript)
    };
    let mut parser = parser(found, AsciiCompatibleEncoding::utf_8(), false);
    if parser.write(inner.as_bytes()).is_ok() {
        let _ = parser.end();
    }
}

/// The most that is read of one `noscript` element: there is one link or image in it, seldom more.
const MAX_NOSCRIPT: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::found::{MAX_URL_BYTES, refresh_target};
    use super::*;

    fn read(content_type: &str, body: &[u8], piece: usize) -> Page {
        let url = Url::parse("http://a.example/dir/page?x=1").unwrap();
        let reader = PageReader::new(&url, Some(content_type)).unwrap();
        let page = read_with(reader, body, piece);
        let reader = PageReader::new(&url, Some(content_type)).unwrap();
        let title = read_with(reader.title_only(), body, piece).title;
        assert_eq!(title, page.title, "title only");
        page
    }

    fn read_with(mut reader: PageReader, body: &[u8], piece: usize) -> Page {
        for piece in body.chunks(piece) {
            reader.write(piece);
        }
        reader.finish()
    }

    fn page(body: &str) -> Page {
        let whole = read("text/html", body.as_bytes(), usize::MAX);
        assert_eq!(read("text/html", body.as_bytes(), 1), whole);
        whole
    }

    fn links(body: &str) -> Vec<String> {
        page(body).links.into_iter().map(String::from).collect()
    }

    fn resources(body: &str) -> Vec<(String, ResourceKind)> {
        let resources = page(body).resources.into_iter();
        resources
            .map(|resource| (resource.url.into(), resource.kind))
            .collect()
    }

    #[test]
    fn reads_html_only() {
        let url = Url::parse("http://a.example/").unwrap();
        let is_read = |content_type| PageReader::new(&url, content_type).is_some();
        assert!(is_read(Some("text/html")));
        assert!(is_read(Some(" Text/HTML ;charset=utf-8")));
        assert!(is_read(Some("application/xhtml+xml")));
        assert!(!is_read(Some("text/plain")));
        assert!(!is_read(Some("text/html5")));
        assert!(!is_read(Some("application/xml")));
        assert!(!is_read(Some("")));
        assert!(!is_read(None));
    }

    #[test]
    fn finds_links() {
        let found = links(
            r##"<a href=one>1</a> <A HREF=' /two#x '>2</A><a href="">self</a><area href="?y">
            <a href="#top">self again</a><a>none</a><a href="//b.example">3</a>
            <iframe src="frame.html"></iframe><a href='a&amp;b?c=1&copy=2&#38;d'>4</a>
            <link rel="next" href="n"><link rel=canonical href=c><link rel=alternate href=no>
            <a href="javascript:void(0)"></a><a href="mailto:x@b.example"></a><a href="data:,x"></a>
            <a href="ftp://b.example/"></a><a href="http://[bad"></a><a href=one>again</a>"##,
        );
        assert_eq!(
            found,
            [
                "http://a.example/dir/one",
                "http://a.example/two",
                "http://a.example/dir/page?x=1",
                "http://a.example/dir/page?y",
                "http://b.example/",
                "http://a.example/dir/frame.html",
                "http://a.example/dir/a&b?c=1&copy=2&d",
                "http://a.example/dir/n",
                "http://a.example/dir/c",
            ]
        );
    }

    #[test]
    fn finds_links_of_frames_and_refreshes() {
        let body = "<meta http-equiv=Refresh content='5; URL=\"next page\"'><frameset><frame src=left><frame src=right></frameset>";
        let expected = [
            "http://a.example/dir/next%20page",
            "http://a.example/dir/left",
            "http://a.example/dir/right",
        ];
        assert_eq!(links(body), expected);
        let targets = [
            "0;url=a",
            "0; URL = 'a'b",
            "5,a ",
            " 1.5 ;a",
            "0 url=a",
            ";\"a",
        ]
        .map(refresh_target);
        assert_eq!(targets, [Some("a"); 6]);
        assert_eq!(["5", "", "5;", "5; url="].map(refresh_target), [None; 4]);
    }

    #[test]
    fn ignores_what_is_no_tag() {
        let body = r#"<script>var x = '<a href="s">';</script><style><a href="t"></style>
            <!-- <a href="c"> --><textarea><a href="u"></textarea><title><a href="v"></title>
            <template><a href="w"><template><a href=w2></template><img src=w3></template>
            <xmp><a href=x></xmp><p title='<a href="y">'><a href=yes>"#;
        assert_eq!(links(body), ["http://a.example/dir/yes"]);
        assert!(resources(body).is_empty());
    }

    #[test]
    fn reads_what_is_meant_for_programs_without_scripts() {
        let body = "<noscript><a href=one>1</a><img src='//t.example/p.gif?a=1&amp;b'></noscript><a href=two>";
        assert_eq!(
            links(body),
            ["http://a.example/dir/one", "http://a.example/dir/two"]
        );
        assert_eq!(
            resources(body),
            [(
                "http://t.example/p.gif?a=1&b".to_owned(),
                ResourceKind::Image
            )]
        );
    }

    #[test]
    fn resolves_against_the_first_base() {
        let body =
            "<base target=_top><base href='/other/'><base href='http://no.example/'><a href=x>";
        assert_eq!(links(body), ["http://a.example/other/x"]);
        assert_eq!(
            links("<base href='javascript:x'><base href='/no/'><a href=x>"),
            ["http://a.example/dir/x"]
        );
    }

    #[test]
    fn does_not_follow_what_is_marked_so() {
        assert_eq!(
            links("<a rel='ugc NoFollow' href=a>a<a rel=nofollower href=b>b"),
            ["http://a.example/dir/b"]
        );
        for content in ["nofollow", "noindex, NOFOLLOW", "none", "noindex nofollow"] {
            assert!(
                links(&format!(
                    "<a href=a><meta name=Robots content='{content}'><a href=b>"
                ))
                .is_empty()
            );
        }
        assert_eq!(
            links("<meta name=robots content=noindex><meta name=other content=nofollow><a href=a>")
                .len(),
            1
        );
    }

    #[test]
    fn lists_what_the_page_loads() {
        use ResourceKind::{Font, Frame, Image, Media, Object, Other, Script, Style};
        let body = "<script src=s.js></script><script>x</script><script src=s.js></script><img src=i><img>
            <link rel='StyleSheet preload' href=c.css><link rel=preload as=font href=f><link rel=manifest href=m>
            <link rel='shortcut icon' href=icon><link rel=preconnect href=http://no.example>
            <video src=v><source src=v2><track src=t></video><audio src=a></audio><embed src=e><object data=o></object>
            <input type=IMAGE src=b><input src=no><iframe src=http://f.example/></iframe><img src='data:image/png,x'>";
        let found = resources(body);
        let names: Vec<_> = found
            .iter()
            .map(|(url, kind)| (url.rsplit('/').next().unwrap(), *kind))
            .collect();
        assert_eq!(
            names,
            [
                ("s.js", Script),
                ("i", Image),
                ("c.css", Style),
                ("f", Font),
                ("m", Other),
                ("icon", Image),
                ("v", Media),
                ("v2", Media),
                ("t", Media),
                ("a", Media),
                ("e", Object),
                ("o", Object),
                ("b", Image),
                ("", Frame),
            ]
        );
    }

    #[test]
    fn reads_the_title() {
        let title = |body: &str| page(body).title;
        assert_eq!(
            title("<title>\n One &amp; two\t&mdash;  three \u{1}</title>").unwrap(),
            "One & two — three"
        );
        assert_eq!(
            title("<svg><title>no</title></svg><title>yes</title><title>no</title>").unwrap(),
            "yes"
        );
        assert_eq!(title("<title></title><title> </title><p>"), None);
        assert_eq!(title("<title>a <b>c</b></title>").unwrap(), "a <b>c</b>");
        assert_eq!(title("<title>not closed").unwrap(), "not closed");
        assert_eq!(title("<p>none"), None);
        assert_eq!(
            title(&format!("<title>{}</title>", "äb ".repeat(1000)))
                .unwrap()
                .chars()
                .count(),
            MAX_TITLE - 1
        );
    }

    #[test]
    fn decodes_the_page_as_declared() {
        let check = |content_type: &str, body: &[u8], title: &str, link: &str| {
            for piece in [1, 7, usize::MAX] {
                let page = read(content_type, body, piece);
                assert_eq!(page.title.as_deref(), Some(title), "{content_type}");
                assert_eq!(page.links[0].as_str(), format!("http://a.example{link}"));
            }
        };
        let latin = b"<title>caf\xe9</title><a href='/\xe9?\xe9'>";
        check(
            "text/html; charset=ISO-8859-1",
            latin,
            "café",
            "/%C3%A9?%E9",
        );
        check("text/html", latin, "café", "/%C3%A9?%E9");
        check(
            "text/html; charset=\"windows-1252\"",
            latin,
            "café",
            "/%C3%A9?%E9",
        );
        let unicode = "<title>café</title><a href='/é?é'>".as_bytes();
        check("text/html", unicode, "café", "/%C3%A9?%C3%A9");
        check(
            "text/html; charset=nonsense",
            unicode,
            "café",
            "/%C3%A9?%C3%A9",
        );
        check(
            "text/html; charset=latin1",
            &[b"\xef\xbb\xbf", unicode].concat(),
            "café",
            "/%C3%A9?%C3%A9",
        );
        let russian = b"<meta charset=koi8-r><title>\xc4\xc1</title><a href='/\xc4?\xc4'>";
        check("text/html", russian, "да", "/%D0%B4?%C4");
        let russian = b"<meta http-equiv=content-type content='text/html; charset=koi8-r'><title>\xc4\xc1</title><a href='/\xc4?\xc4'>";
        check("text/html", russian, "да", "/%D0%B4?%C4");
        let xhtml = b"<?xml version='1.0' encoding='iso-8859-1'?><html><title>caf\xe9</title><a href='/\xe9'/></html>";
        check("application/xhtml+xml", xhtml, "café", "/%C3%A9");
        let wide: Vec<u8> = "<title>café</title><a href='/é?é'>"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        check(
            "text/html; charset=utf-16le",
            &wide,
            "café",
            "/%C3%A9?%C3%A9",
        );
        check(
            "text/html",
            &[&b"\xff\xfe"[..], &wide].concat(),
            "café",
            "/%C3%A9?%C3%A9",
        );
    }

    #[test]
    fn goes_on_after_invalid_bytes() {
        let page = read(
            "text/html; charset=utf-8",
            b"<title>a\xff\xfeb</title>\x80<a href='/\xff'>\xc3<a href=/y>",
            1,
        );
        assert_eq!(page.title.as_deref(), Some("a\u{fffd}\u{fffd}b"));
        assert_eq!(page.links.len(), 2);
        assert_eq!(page.links[1].as_str(), "http://a.example/y");
    }

    #[test]
    fn bounds_what_it_takes() {
        let many: String = (0..MAX_LINKS + 10)
            .map(|n| format!("<a href={n}>"))
            .collect();
        let page = read("text/html", many.as_bytes(), 4096);
        assert!(page.links.len() == MAX_LINKS && page.is_truncated);
        let long: String = (0..1000)
            .map(|n| format!("<a href={n}{}>", "x".repeat(8000)))
            .collect();
        let page = read("text/html", long.as_bytes(), 4096);
        let bytes: usize = page.links.iter().map(|url| url.as_str().len()).sum();
        assert!(bytes <= MAX_URL_BYTES && page.is_truncated && page.links.len() > 200);
        let endless = format!(
            "<a href=first><a title='{}",
            "x".repeat(MAX_PARSER_MEMORY + 1)
        );
        let page = read("text/html", endless.as_bytes(), 4096);
        assert!(page.links.len() == 1 && page.is_truncated);
        let deep = "<div><a href=x>".repeat(200_000);
        let page = read("text/html", deep.as_bytes(), 4096);
        assert_eq!(page.links.len(), 1);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(
            body in prop::collection::vec(any::<u8>(), 0..3_000),
            piece in 1_usize..500,
            charset in prop::sample::select(vec!["", ";charset=utf-8", ";charset=utf-16", ";charset=gbk", ";charset=iso-2022-jp"]),
        ) {
            read(&format!("text/html{charset}"), &body, piece);
        }

        #[test]
        fn any_split_gives_the_same_page(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "<a href=", "<a rel=nofollow href='", "x", "&amp;", "&", "'", "\"", ">", "<", "/", "<title>", "</title>",
                "<template>", "</template>", "<script>", "</script>", "<!--", "-->", "<noscript>", "</noscript>", "<base href='/b/'>",
                "<meta charset=koi8-r>", "<img src=i>", "<svg>", "</svg>", "é", " ", "<textarea>", "</textarea>", "<select>", "<table>",
            ]), 0..60),
            len in 1_usize..20,
        ) {
            let body = pieces.concat();
            let whole = read("text/html", body.as_bytes(), usize::MAX);
            prop_assert_eq!(read("text/html", body.as_bytes(), len), whole);
        }
    }
}
