"""A page in a browser tab, with everything that it says and asks for."""


class Tab:
    """A page of one figure, with all that went wrong in it, and all that it asked for."""

    def __init__(self, browser, address: str, content: str | None = None, **more):
        self.window = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **more})
        self.page = self.window.new_page()
        self.said, self.requests = [], []
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("dialog", self._dialog)
        self.page.on("request", lambda request: self.requests.append(request.url))
        if content is None:
            self.page.goto(address)
        else:
            self.page.set_content(content)

    def _dialog(self, dialog) -> None:
        self.said.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    @property
    def step(self) -> int:
        return int(self.page.get_attribute("#figure", "data-step"))

    @property
    def steps(self) -> int:
        return int(self.page.get_attribute("#figure input[type=range]", "max")) + 1

    def press(self, button: str) -> None:
        # Forced: a button that has nothing to do says so, and is pressed by people all the same.
        self.page.click(f"[data-do={button}]", force=True)

    def words(self) -> str:
        return self.page.inner_text("[role=status]")

    def walk(self, most: int) -> list[tuple[int, str, str]]:
        """The step, its words and all words of the page, for each of at most so many steps from here.

        The keys are pressed inside the page, and nothing is laid out: some figures have thousands of steps.
        """
        return self.page.evaluate(
            """most => {
              const figure = document.querySelector("#figure");
              const words = document.querySelector("[role=status]");
              const main = document.querySelector("main");
              const seen = [];
              for (let i = 0; i < most; i++) {
                seen.push([Number(figure.dataset.step), words.textContent, main.textContent]);
                document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight", bubbles: true}));
              }
              return seen;
            }""",
            most,
        )

    def colours(self) -> tuple[str, str]:
        style = (
            "(() => { const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]; })()"
        )
        return tuple(self.page.evaluate(style))

    def overflow(self) -> int:
        """How many pixels the page is wider than its window."""
        return self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )

    def choices(self):
        """Each state that one choice can be put into, the others as they are; its name as it is shown."""
        for select in self.page.query_selector_all(".choices select"):
            kept = select.evaluate("e => e.value")
            for value in select.evaluate("e => [...e.options].map(o => o.value)"):
                select.select_option(value)
                yield f"{select.get_attribute('name')}={value}"
            if kept in select.evaluate("e => [...e.options].map(o => o.value)"):
                select.select_option(kept)
