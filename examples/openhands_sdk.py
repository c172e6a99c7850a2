"""OpenHands' software agent SDK through the router.

    pip install openhands-sdk openhands-tools thunder-router        # Python 3.12 or newer
    python examples/openhands_sdk.py "Count the lines of README.md"

Not run by our tests: the SDK needs Python 3.12, and this repository is tested on 3.11. What is
certain is only what goes over the wire: litellm sends `extra_body` and `extra_headers` as given,
and either names the program.
"""

import os
import sys
from pathlib import Path

from openhands.sdk import LLM, Agent, Conversation, Tool
from openhands.tools.file_editor import FileEditorTool
from openhands.tools.terminal import TerminalTool
from pydantic import SecretStr

from thunder_router.client import Program

ROUTER = os.environ.get("THUNDER_ROUTER", "http://127.0.0.1:30000")

if __name__ == "__main__":
    # One conversation is one program. Give each sub-agent with a context of its own another one.
    with Program(ROUTER) as program:
        llm = LLM(
            model="openai/local-model",
            base_url=program.base_url,
            api_key=SecretStr("unused"),
            litellm_extra_body=program.body,
            extra_headers=program.headers,
        )
        agent = Agent(llm=llm, tools=[Tool(name=TerminalTool.name), Tool(name=FileEditorTool.name)])
        conversation = Conversation(agent=agent, workspace=str(Path.cwd()))
        conversation.send_message(sys.argv[1])
        conversation.run()
