"""LangChain's ChatOpenAI as its users write it."""
import asyncio

import front
import pytest
from bare import Bare
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from test_openai_tools import CONTEXT, TEMPLATES, VOCABULARY, Scripted, model_folder

MODEL = "tiny-shakespeare"
ASKED = [SystemMessage("Be brief."), HumanMessage("Speak.")]


@tool
def get_weather(city: str) -> str:
    """Weather of a city"""
    return f"21 degrees in {city}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    from harness import Cluster
    cluster = Cluster(tmp_path_factory.mktemp("langchain"), settings=front.SETTINGS)
    yield cluster
    cluster.stop()


def chat(address, **more):
    return ChatOpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=0, extra_body={"ignore_eos": True}, **{"model": MODEL, "max_tokens": 12, "seed": 3, **more})


def test_invoke_and_stream_say_the_same(cluster):
    llm = chat(front.address(cluster))
    whole = llm.invoke(ASKED)
    assert whole.content and whole.response_metadata["finish_reason"] == "length" and whole.response_metadata["model_name"] == MODEL
    assert whole.usage_metadata["output_tokens"] == 12 and whole.usage_metadata["input_tokens"] > 2
    chunks = list(llm.stream(ASKED))
    assert "".join(chunk.content for chunk in chunks) == whole.content and len([c for c in chunks if c.content]) > 2
    with_usage = list(chat(front.address(cluster), stream_usage=True).stream(ASKED))
    assert sum(chunk.usage_metadata["output_tokens"] for chunk in with_usage if chunk.usage_metadata) == 12

    async def both():
        return (await llm.ainvoke(ASKED)).content, "".join([chunk.content async for chunk in llm.astream(ASKED)])
    assert asyncio.run(both()) == (whole.content, whole.content)


def test_what_its_users_set(cluster):
    address = front.address(cluster)
    assert [answer.content for answer in chat(address).batch([ASKED, ASKED])] == [chat(address).invoke(ASKED).content] * 2
    whole = chat(address, temperature=0, max_tokens=24).invoke("Speak.").content
    assert chat(address, temperature=0, max_tokens=24, stop_sequences=[whole[6:10]]).invoke("Speak.").content == whole[:whole.index(whole[6:10])]
    several = chat(address, n=2).generate([ASKED])
    assert len(several.generations[0]) == 2
    scored = chat(address, logprobs=True, top_logprobs=2).invoke(ASKED)
    assert len(scored.response_metadata["logprobs"]["content"]) == 12
    history = [*ASKED, AIMessage("I speak."), HumanMessage([{"type": "text", "text": "More."}])]
    assert chat(address).invoke(history).content


def test_errors_are_the_packages(cluster):
    import openai
    with pytest.raises(openai.NotFoundError):
        chat(front.address(cluster), model="gpt-4").invoke("Speak.")
    with pytest.raises(openai.BadRequestError) as caught:
        chat(front.address(cluster), temperature=-1).invoke("Speak.")
    assert caught.value.code == "invalid_sampling"


def test_tools(tmp_path):
    template, text, said = TEMPLATES["hermes"]
    router = Bare("baton-router", "--http-listen", "127.0.0.1:0", model=model_folder(tmp_path / "model", template))
    try:
        worker = Scripted(router.grpc, "model", CONTEXT, VOCABULARY)
        try:
            worker.script = front.Front(router).ask("/tokenize", {"prompt": text, "add_special_tokens": False}).json["tokens"] + [0]
            llm = chat(router.front, model="model", max_tokens=200).bind_tools([get_weather])
            asked = [HumanMessage("Weather in Verona?")]
            answer = llm.invoke(asked)
            [call] = answer.tool_calls
            assert call["name"] == "get_weather" and call["args"]["city"] == "Verona" and answer.content == said
            streamed = None
            for chunk in llm.stream(asked):
                streamed = chunk if streamed is None else streamed + chunk
            assert [(c["name"], c["args"]) for c in streamed.tool_calls] == [(call["name"], call["args"])]
            back = [*asked, answer, ToolMessage(get_weather.invoke({"city": "Verona"}), tool_call_id=call["id"])]
            assert llm.invoke(back).tool_calls
        finally:
            worker.stop()
    finally:
        assert not router.stop()
