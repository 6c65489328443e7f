"""Calls of tools as models make them, with the tools that many agents have."""

from __future__ import annotations

from typing import Any

from dictionary.random_text import RandomText

_TOOLS: dict[str, tuple[str, ...]] = {
    "search": ("query",),
    "tavily_search": ("query", "max_results", "topic"),
    "web_search": ("query",),
    "get_weather": ("city", "location"),
    "calculator": ("expression",),
    "calculate": ("expression",),
    "retrieve_documents": ("query", "k"),
    "read_file": ("file_path", "offset", "limit"),
    "write_file": ("file_path", "content"),
    "edit_file": ("file_path", "old_string", "new_string", "replace_all"),
    "ls": ("path",),
    "grep": ("pattern", "path", "glob", "output_mode"),
    "glob": ("pattern", "path"),
    "execute": ("command",),
    "bash": ("command",),
    "python_repl": ("code",),
    "run_query": ("query",),
    "sql_db_query": ("query",),
    "sql_db_list_tables": (),
    "fetch_url": ("url",),
    "send_email": ("to", "subject", "body"),
    "get_user_details": ("user_id",),
    "get_order_details": ("order_id",),
    "update_order": ("order_id", "status"),
    "create_event": ("title", "start_time", "end_time", "attendees"),
    "think": ("thought",),
    "write_todos": ("todos",),
    "task": ("description", "subagent_type"),
    "transfer_to_agent": (),
    "submit_answer": ("answer",),
}


def _argument(text: RandomText, name: str) -> Any:
    if name in ("content", "new_string", "old_string", "code"):
        return text.code(12)
    if name in ("description", "body", "thought", "answer"):
        return text.prose(3)
    if name in ("file_path", "path"):
        folder = text.pick("/src/", "/app/", "/tests/", "src/", "/home/user/project/", "/")
        return folder + text.pick("main.py", "utils.py", "index.ts", "config.json", "README.md", "test_main.py")
    if name in ("offset", "limit", "k", "max_results"):
        return text.number(1, 2000)
    if name == "replace_all":
        return text.pick(True, False)
    if name == "todos":
        states = ("pending", "in_progress", "completed")
        return [{"content": text.prose(1)[:60], "status": text.pick(*states)} for _ in range(text.number(1, 5))]
    if name == "command":
        return text.pick(
            "ls -la", "python -m pytest", "git status", "cat ", "npm run build", "cd /app && "
        ) + text.letters(4)
    if name == "url":
        return f"https://www.example.com/{text.letters(8)}"
    return text.pick(text.prose(1)[:50], text.letters(8), f"user_{text.number(1, 9999)}", str(text.number(1, 99999)))


def tool_call(text: RandomText, prefix: str, length: int) -> dict[str, Any]:
    """One call; its id is a prefix and so many random letters, or a UUID for the prefix `uuid`."""
    name = text.pick(*_TOOLS)
    call_id = text.uuid() if prefix == "uuid" else prefix + text.letters(length)
    return {
        "name": name,
        "args": {each: _argument(text, each) for each in _TOOLS[name]},
        "id": call_id,
        "type": "tool_call",
    }


def tool_calls(text: RandomText, prefix: str, length: int) -> list[dict[str, Any]]:
    """None, one or two calls."""
    return [tool_call(text, prefix, length) for _ in range(text.pick(0, 0, 1, 1, 1, 2))]
