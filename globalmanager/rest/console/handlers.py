"""The routes of the console: who asks, what the caller may see, and the answer.

A page answers a browser with HTML, and an EventSource at the same address with its changes.
"""

import contextlib
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from common.logs import get_logger
from edgeai.api.resources import Object, ObjectRef
from edgeai.errors import Overloaded
from edgeai.ids import Uid
from globalmanager.edge.identity.handshake import bearer_token
from globalmanager.rest.access import Reading, is_allowed
from globalmanager.rest.console import actions, answers, views
from globalmanager.rest.console.actions import CallersApi, Choices
from globalmanager.rest.console.answers import LOGIN, is_part, is_stream, scope, see
from globalmanager.rest.console.board import APART, Sight, path_of, section_of
from globalmanager.rest.console.details import curve_by_round
from globalmanager.rest.console.events import Events
from globalmanager.rest.console.live import Live, PageRate
from globalmanager.rest.console.login import check_origin, is_from_this_machine, local_path
from globalmanager.rest.console.logs import LogChoice, Logs, containers_of
from globalmanager.rest.console.past import Past
from globalmanager.rest.console.recent import Recent
from globalmanager.rest.console.theme import POLICY, theme
from globalmanager.rest.console.visits import CALLER, VISIT, Visit, Visits
from globalmanager.rest.errors import RequestError, answer, answer_to
from globalmanager.rest.routes import Handler, Route

log = get_logger(__name__)

JOB_PATH: Final = "/jobs/{type}/{namespace}/{name}"
PAGES: Final[dict[str, views.View]] = {
    "/": views.overview,
    **{f"/{section}": partial(views.listing, section) for section in ("jobs", *APART)},
    JOB_PATH: views.job,
    "/nodes": views.nodes,
    "/nodes/{name}": views.node,
}
LIVE_S: Final = 300.0
"""Seconds after which the caller of an open page is checked again."""


class Console:
    """The pages of one GlobalManager. Args: past: None: nobody knows more than `recent`"""

    def __init__(
        self,
        visits: Visits,
        *,
        live: Live,
        callers_api: CallersApi,
        recent: Recent,
        past: Past | None,
        version: str,
    ) -> None:
        self._visits = visits
        self._reviews = visits.reviews
        self._logins = visits.logins
        self._board = visits.board
        self._callers_api = callers_api
        self._recent = recent
        self._past = past
        self._live = live
        self._version = version
        self._logs = Logs(callers_api)
        self._events = Events(callers_api, visits.board)
        self._rate = PageRate()
        self.routes = (
            *(self._route(path, partial(self._page, view)) for path, view in PAGES.items()),
            self._route(LOGIN, self._show_login),
            self._route(LOGIN, self._log_in, method="POST"),
            self._route("/login/code", self._make_code, method="POST"),
            self._route("/logout", self._log_out, method="POST"),
            self._route(f"{JOB_PATH}/events", self._show_events),
            self._route(f"{JOB_PATH}/logs", self._show_log),
            self._route(f"{JOB_PATH}/curve", self._send_curve),
            self._route(f"{JOB_PATH}/guard", self._send_curve),
            self._route(f"{JOB_PATH}/{{action}}", self._act, method="POST"),
            self._route("/static/{name}", answers.send_file),
            self._route("/{unknown:.+}", self._refuse_unknown),
        )

    def _route(self, path: str, handler: Handler, *, method: str = "GET") -> Route:
        return Route(path, partial(self._guarded, handler), str, method=method)

    async def _guarded(self, handler: Handler, request: web.Request) -> web.StreamResponse:
        """Every failure is a page too, and every answer has the headers that protect it."""
        try:
            response = await handler(request)
        except RequestError as error:
            if error.status == HTTPStatus.UNAUTHORIZED:
                response = answers.to_login(request)
                self._logins.end(request, response)
            else:
                response = self._problem(request, error)
        if not response.prepared:
            response.headers.update(POLICY)
        return response

    def _problem(self, request: web.Request, error: RequestError) -> web.Response:
        content = {
            "title": error.status.phrase.capitalize(),
            "message": error.message,
            "back": answers.job_path(request),
        }
        if is_part(request):
            text = theme().block("problem.html", "problem", **content)
            response = web.Response(text=text, status=error.status, content_type="text/html")
        else:
            visit = request.get(VISIT)
            viewer = {} if visit is None else self._of(visit)
            response = self._html(request, "problem.html", status=error.status, **content, **viewer)
        return answer_to(error, response)

    def _html(
        self, request: web.Request, template: str, *, status: int = 200, **values: Any
    ) -> web.Response:
        context = {
            "path": request.path,
            "caller": request.get(CALLER),
            "sight": None,
            "form_key": "",
            "live": "",
            "message": actions.MESSAGES.get(answers.done_action(request), ""),
        }
        text = theme().page(template, **{**context, "version": self._version, **values})
        return web.Response(text=text, status=status, content_type="text/html")

    # ---- pages ----

    async def _page(self, view: views.View, request: web.Request) -> web.StreamResponse:
        visit = await self._visits.of(request)
        self._rate.take(request)
        if view is not views.nodes:
            await self._board.prepare(visit.sight)
        if is_stream(request):
            return await self._follow(view, visit, request)
        page = view(self._board, visit.sight, _address(request))
        offers = await self._offers(request, visit) if view is views.job else {}
        return self._html(
            request,
            page.template,
            title=page.title,
            live=str(request.rel_url.without_query_params(answers.DONE)),
            **self._of(visit),
            **page.values,
            **offers,
        )

    def _of(self, visit: Visit) -> dict[str, Any]:
        """What every page shows of who looks at it."""
        session = visit.session
        return {
            "caller": visit.caller,
            "is_by_proxy": visit.is_by_proxy,
            "sight": visit.sight,
            "form_key": "" if session is None else self._logins.form_key(session),
            "scope": scope(visit.sight),
            "namespaces": visit.namespaces,
        }

    async def _refuse_unknown(self, request: web.Request) -> web.StreamResponse:
        with contextlib.suppress(RequestError):
            await self._visits.of(request)  # so that the page has its navigation
        if "text/html" not in request.headers.get("Accept", ""):
            raise web.HTTPNotFound  # programs get JSON, as from all of REST
        raise RequestError(HTTPStatus.NOT_FOUND, f"{request.path[:200]}: no such page")

    async def _follow(
        self, view: views.View, visit: Visit, request: web.Request
    ) -> web.StreamResponse:
        """Send the page's changes. After LIVE_S the stream ends, and the browser asks again."""
        address = _address(request)
        was_shown = False

        def render() -> dict[str, str]:
            nonlocal was_shown
            try:
                page = view(self._board, visit.sight, address)
            except RequestError as error:
                if not was_shown:
                    raise
                content = {"message": error.message, "scope": scope(visit.sight)}
                return {"page": theme().block("ended.html", "gone", **content)}
            was_shown = True
            extras = {"choices": self._choices(visit.sight, address)} if view is views.job else {}
            values = {**page.values, **extras, "sight": visit.sight, "scope": scope(visit.sight)}
            return {"page": theme().block(page.template, "live", **values)}

        try:
            key = (request.path_qs, visit.sight)
            for_s = min(LIVE_S, self._logins.left_s(visit.session))
            viewer = visit.caller.tenant or request.remote or ""
            return await self._live.send(request, key, render, viewer=viewer, for_s=for_s)
        except Overloaded as error:
            raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error

    async def _show_events(self, request: web.Request) -> web.StreamResponse:
        """The Events of a job: a part for the job's open page, or a page of its own."""
        visit = await self._visits.of(request)
        self._rate.take(request)
        ref, job = self._job(request, visit.sight)
        loaded = await self._events.load(visit, ref, job)
        if is_part(request):
            text = theme().block("events.html", "events", **loaded._asdict())
            return web.Response(text=text, content_type="text/html")
        return self._html(
            request,
            "events.html",
            title=f"Events of {ref.type.kind} {ref.namespace}/{ref.name}",
            job_path=path_of(ref),
            **self._of(visit),
            **loaded._asdict(),
        )

    async def _show_log(self, request: web.Request) -> web.StreamResponse:
        """The page of a pod's log, and to an EventSource the log itself."""
        visit = await self._visits.of(request)
        self._rate.take(request)
        ref, _ = self._job(request, visit.sight)
        pods = {str(pod["metadata"]["name"]): pod for pod in self._board.pods(visit.sight, ref)}
        name = request.query.get("pod", "")
        if name not in pods:
            problem = f"{name[:64]!r}: the job has no such pod, or you may not list its pods"
            raise RequestError(HTTPStatus.NOT_FOUND, problem)
        containers = containers_of(pods[name])
        container = request.query.get("container", "")
        if container not in containers:
            container = containers[0] if containers else ""
        choice = LogChoice(name, container, request.query.get("previous", "") == "1")
        if is_stream(request):
            for_s = min(LIVE_S, self._logins.left_s(visit.session))
            return await self._logs.send(request, visit, ref.namespace, choice, for_s=for_s)
        return self._html(
            request,
            "log.html",
            title=f"Log of {name}",
            ref=ref,
            job_path=path_of(ref),
            section=section_of(ref.type.kind),
            pods=list(pods)[: views.MAX_ROWS],
            containers=containers,
            choice=choice,
            source=request.path_qs,
            **self._of(visit),
        )

    async def _send_curve(self, request: web.Request) -> web.StreamResponse:
        """The metrics of a job, or of its guard, from before the page was opened."""
        visit = await self._visits.of(request)
        self._rate.take(request)
        ref, job = self._job(request, visit.sight)
        if request.path.endswith("/guard"):
            return answer(self._recent.guard_curve(ref.type, job))
        curve = curve_by_round(job) or self._recent.curve(job)
        if self._past is not None and not curve.is_by_round:
            curve = await self._past.curve(visit.caller.tenant, ref, job)
        return answer(curve)

    # ---- actions ----

    async def _offers(self, request: web.Request, visit: Visit) -> dict[str, Any]:
        ref, _ = self._job(request, visit.sight)
        may = {}
        for verb in ("patch", "delete"):
            reading = Reading(verb, ref.type, ref.namespace, ref.name)
            may[verb] = visit.session is not None and await is_allowed(  # else there is no token
                self._reviews, request, visit.caller, reading
            )
        choices = self._choices(visit.sight, _address(request))
        return {"may": may, "choices": choices}

    def _choices(self, sight: Sight, address: views.PageAddress) -> Choices | None:
        """What the page of a job offers to whoever has the right. Raises: RequestError"""
        ref, object_ = views.job_of(self._board, sight, address)
        kind = self._visits.kinds.get(ref.type)
        return None if kind is None else actions.choices_of(kind.definition, object_)

    async def _act(self, request: web.Request) -> web.StreamResponse:
        check_origin(request)
        visit = await self._visits.of(request)
        if visit.session is None:
            raise RequestError(HTTPStatus.FORBIDDEN, "log in to change something")
        form = await request.post()
        self._logins.check_form(visit.session, str(form.get("form_key", "")))
        ref, job = self._job(request, visit.sight)
        action, uid = request.match_info["action"], Uid(str(form.get("uid", "")))
        verb = actions.VERBS.get(action)
        kind = self._visits.kinds.get(ref.type)
        if verb is None or kind is None or not uid:
            raise RequestError(HTTPStatus.NOT_FOUND, f"{action[:64]!r}: no such action")
        if uid != job["metadata"].get("uid"):
            problem = f"{ref} was deleted and created again after its page was loaded"
            remedy = "nothing was changed; load its page again"
            raise RequestError(HTTPStatus.CONFLICT, f"{problem}: {remedy}")
        reading = Reading(verb, ref.type, ref.namespace, ref.name)
        await self._reviews.check(request, visit.caller, reading)
        token = visit.session.token
        if action == "delete":
            if form.get("name") != ref.name:
                problem = f"type the name of the job, {ref.name}, to delete the job"
                raise RequestError(HTTPStatus.BAD_REQUEST, problem)
            await self._callers_api.delete(token, ref, uid)
        else:
            if action == "scale":
                actions.check_size(kind.definition, job, form)
            patch = actions.patch_of(action, kind.definition, job, uid, form)
            await self._callers_api.patch(token, ref, patch)
        log.info("changed in the console", action=action, object=str(ref), by=visit.caller.username)
        path = request.path.rpartition("/")[0]
        if action == "delete":
            path = f"/{section_of(ref.type.kind)}"
        return see(path + scope(visit.sight, done=action))

    def _job(self, request: web.Request, sight: Sight) -> tuple[ObjectRef, Object]:
        """Raises: RequestError"""
        return views.job_of(self._board, sight, _address(request))

    # ---- login ----

    async def _show_login(self, request: web.Request) -> web.StreamResponse:
        next_ = local_path(request.query.get("next", "/"))
        if self._visits.proxy.token_of(request):
            return see(next_)
        if code := request.query.get("code", ""):
            return await self._log_in_by_code(request, code)
        return self._html(request, "login.html", title="Log in", next=next_)

    async def _log_in(self, request: web.Request) -> web.StreamResponse:
        check_origin(request)
        form = await request.post()
        token, next_ = str(form.get("token", "")).strip(), local_path(str(form.get("next", "/")))
        try:
            if not token:
                raise RequestError(HTTPStatus.UNAUTHORIZED, "the field is empty")
            await self._reviews.identify(request, token)
        except RequestError as error:
            if error.status != HTTPStatus.UNAUTHORIZED:
                raise
            problem, _, _ = error.message.partition(": send a token")
            content = {"title": "Log in", "next": next_, "problem": problem}
            return self._html(request, "login.html", status=HTTPStatus.FORBIDDEN, **content)
        response = see(next_)
        self._logins.begin(request, response, token)
        return response

    async def _make_code(self, request: web.Request) -> web.StreamResponse:
        """A code for `edgeai open`, which shows the token in the header Authorization."""
        await self._reviews.identify(request)
        if not is_from_this_machine(request):
            problem = "codes are for a console on this machine: log in with the token"
            raise RequestError(HTTPStatus.FORBIDDEN, problem)
        token = bearer_token(request.headers.get("Authorization", ""))
        return web.Response(text=self._logins.new_code(token), content_type="text/plain")

    async def _log_in_by_code(self, request: web.Request, code: str) -> web.StreamResponse:
        check_origin(request)  # a link of another site could log in somebody else
        token = self._logins.token_of(code) if is_from_this_machine(request) else ""
        if not token:
            problem = "the code was used before or has expired: run `edgeai open` again"
            raise RequestError(HTTPStatus.FORBIDDEN, problem)
        response = see("/")
        self._logins.begin(request, response, token)
        return response

    async def _log_out(self, request: web.Request) -> web.StreamResponse:
        if self._visits.proxy.token_of(request):  # the proxy would log the caller in again
            problem = "the proxy before the console has logged you in: log out there"
            raise RequestError(HTTPStatus.FORBIDDEN, problem)
        session = self._logins.session_of(request)
        if session is not None:
            form = await request.post()
            self._logins.check_form(session, str(form.get("form_key", "")))
        response = see(LOGIN)
        self._logins.end(request, response)
        return response


def _address(request: web.Request) -> views.PageAddress:
    return views.PageAddress(request.match_info, request.query)
