from django.contrib.auth.decorators import login_not_required
from django.urls import include, path
from oauth2_provider.views import IntrospectTokenView

urlpatterns = [
    path("introspect", login_not_required(IntrospectTokenView.as_view())),
    path("", include("tests.oauth.project.urls")),
]
