"""OpenAI's two completion calls as the stand-in engine answers them: requests read strictly, answers as bytes.

No sockets here. Words stand for tokens: a prompt has as many tokens as it has words, and every generated token is the
same word. The shapes are those of https://platform.openai.com/docs/api-reference (completions, chat, streaming).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from infscale.web.message import Response

JSON = "application/json"
MAX_OUTPUT_TOKENS = 1_000_000
_DEFAULT_COMPLETION = 16
"""Tokens without `max_tokens` in /v1/completions: OpenAI's and vLLM's default."""
_DEFAULT_CHAT = 128
"""A chat answer without `max_tokens` ends by itself (`stop`); this stand-in's answers end here."""
_WORD = " token"
DONE = b"data: [DONE]\n\n"


class ApiError(Exception):
    """A request that is refused: `status` and a text for the client."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


@dataclass(frozen=True)
class Call:
    """One completion request.

    Attributes:
        chat: whether it came to /v1/chat/completions.
        model: as asked for; empty where the request names none.
        prompt_tokens, output_tokens: of the prompt, and how many the answer will have.
        reason: `length`, or `stop` where the client set no limit.
        stream: whether the answer is a stream.
        usage: whether a stream ends with a chunk of token counts.
    """

    chat: bool
    model: str
    prompt_tokens: int
    output_tokens: int
    reason: str
    stream: bool
    usage: bool


def read_call(body: bytes, *, chat: bool) -> Call:
    """Read a request's body.

    Raises:
        ApiError: 400 with what is wrong.
    """
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise ApiError(400, "the body is not JSON") from None
    if not isinstance(fields, dict):
        raise ApiError(400, "the body is not a JSON object")
    model = fields.get("model") or ""
    if not isinstance(model, str):
        raise ApiError(400, "model is not a text")
    if fields.get("n") not in (None, 1):
        raise ApiError(400, "n other than 1 is not played here")
    options = fields.get("stream_options") or {}
    if not isinstance(options, dict):
        raise ApiError(400, "stream_options is not an object")
    limit = _limit(fields, chat=chat)
    default = _DEFAULT_CHAT if chat else _DEFAULT_COMPLETION
    return Call(
        chat=chat,
        model=model,
        prompt_tokens=max(1, _chat_tokens(fields.get("messages")) if chat else _prompt_tokens(fields.get("prompt"))),
        output_tokens=default if limit is None else limit,
        reason="stop" if chat and limit is None else "length",
        stream=bool(fields.get("stream")),
        usage=bool(options.get("include_usage")),
    )


def _limit(fields: dict[str, Any], *, chat: bool) -> int | None:
    names = ("max_completion_tokens", "max_tokens") if chat else ("max_tokens",)
    for name in names:
        value = fields.get(name)
        if value is None:
            continue
        if type(value) is not int or not 1 <= value <= MAX_OUTPUT_TOKENS:
            raise ApiError(400, f"{name} is not a whole number from 1 to {MAX_OUTPUT_TOKENS}")
        return int(value)
    return None


def _prompt_tokens(prompt: object) -> int:
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        prompt = prompt[0]  # a batch of one
    if isinstance(prompt, str):
        return len(prompt.split())
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        return len(prompt)
    raise ApiError(400, "prompt is missing, or neither a text nor a list of token numbers (one prompt a request)")


def _chat_tokens(messages: object) -> int:
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "messages is missing or not a list of messages")
    return sum(_content_tokens(message) for message in messages)


def _content_tokens(message: object) -> int:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise ApiError(400, "a message is not an object with a role")
    content = message.get("content") or ""
    if isinstance(content, list):
        content = " ".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    if not isinstance(content, str):
        raise ApiError(400, "a message's content is neither a text nor a list of parts")
    return len(content.split())


class Writer:
    """Writes the answer to one call, whole or in chunks of a stream."""

    def __init__(self, call: Call, number: int, model: str, created_s: int) -> None:
        self._call = call
        self._sent_tokens = 0
        kind = "chat.completion.chunk" if call.chat else "text_completion"
        self._head = {
            "id": f"{'chatcmpl' if call.chat else 'cmpl'}-{number}",
            "object": kind,
            "created": created_s,
            "model": model,
        }
        # A chunk is written for every token: its JSON is made once, around the place of the text.
        before, after = _dumps(self._chunk("\0", None)).split("\\u0000")
        self._before, self._after = f"data: {before}".encode(), f"{after}\n\n".encode()

    def more(self, tokens: int) -> bytes:
        """Return the chunk that brings the stream from what was sent to `tokens`; empty if there is nothing new."""
        new = tokens - self._sent_tokens
        if new <= 0:
            return b""
        first = self._event({"role": "assistant", "content": ""}) if self._call.chat and not self._sent_tokens else b""
        self._sent_tokens = tokens
        return first + self._before + _WORD.encode() * new + self._after

    def end(self) -> bytes:
        """Return what ends the stream: the reason, the token counts where they were asked for, `[DONE]`."""
        ending = self._event({} if self._call.chat else "", self._call.reason)
        if self._call.usage:
            ending += f"data: {_dumps({**self._head, 'choices': [], 'usage': self._usage()})}\n\n".encode()
        return ending + DONE

    def whole(self) -> Response:
        """Return the answer in one piece."""
        text = _WORD * self._call.output_tokens
        choice: dict[str, object] = {"index": 0, "logprobs": None, "finish_reason": self._call.reason}
        head = self._head
        if self._call.chat:
            choice["message"] = {"role": "assistant", "content": text}
            head = {**head, "object": "chat.completion"}
        else:
            choice["text"] = text
        return json_response(200, {**head, "choices": [choice], "usage": self._usage()})

    def _usage(self) -> dict[str, int]:
        prompt, output = self._call.prompt_tokens, self._call.output_tokens
        return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}

    def _event(self, piece: object, reason: str | None = None) -> bytes:
        return f"data: {_dumps(self._chunk(piece, reason))}\n\n".encode()

    def _chunk(self, piece: object, reason: str | None) -> dict[str, object]:
        """One chunk: `piece` is a text, or for a chat the whole delta."""
        if not self._call.chat:
            choice = {"index": 0, "text": piece, "logprobs": None, "finish_reason": reason}
        else:
            delta = {"content": piece} if isinstance(piece, str) else piece
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**self._head, "choices": [choice]}


def json_response(status: int, value: object) -> Response:
    """Return an answer in JSON."""
    return Response(status, _dumps(value).encode(), JSON)


def error_response(status: int, message: str) -> Response:
    """Return an error as OpenAI's servers write it."""
    kind = {400: "BadRequestError", 401: "AuthenticationError", 404: "NotFoundError"}.get(status, "ServerError")
    return json_response(status, {"error": {"message": message, "type": kind, "param": None, "code": status}})


def models_response(model: str, owner: str, created_s: int, max_tokens: int) -> Response:
    """Return the list of models: the one that is served."""
    entry = {"id": model, "object": "model", "created": created_s, "owned_by": owner, "max_model_len": max_tokens}
    return json_response(200, {"object": "list", "data": [entry]})


def _dumps(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
